package runevents

import "errors"

var (
	// ErrOtherRun is returned for a record of another run than the projection's. Nothing was
	// projected; group the records by run.
	ErrOtherRun = errors.New("runevents: a record of another run")
	// ErrNoRunSeq is returned for a record without a runSeq, which starts at 1. Nothing was
	// projected; such a record does not come from an append authority.
	ErrNoRunSeq = errors.New("runevents: a record without a runSeq")
	// ErrResyncMode is returned for a resync request with an unknown mode. The store was not read.
	ErrResyncMode = errors.New("runevents: no such resync mode")
	// ErrDiscarded is returned by a StateStore that no longer has all events of a run, because of
	// their age or number. The rest does not determine the run's state. Do not retry.
	ErrDiscarded = errors.New("runevents: events of the run were discarded")
	// ErrNotAdvanced is returned by a resync that left the watermark unchanged, and so is not
	// complete. A paused run stays paused; ask again later.
	ErrNotAdvanced = errors.New("runevents: the resync did not advance the watermark")
	// ErrBadID is returned if a Source made an id that is no UUID v4. Nothing was emitted; the
	// Source has to be fixed.
	ErrBadID = errors.New("runevents: an id that was drawn is not a UUID v4")
)
