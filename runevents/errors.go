package runevents

import "errors"

var (
	// ErrOtherRun is returned for a record whose runId is not the projection's. Nothing was
	// projected; group the records by run.
	ErrOtherRun = errors.New("runevents: a record of another run")
	// ErrNoRunSeq is returned for a record without a place in its run: runSeq starts at 1. Nothing
	// was projected; such a record does not come from an append authority.
	ErrNoRunSeq = errors.New("runevents: a record without a runSeq")
	// ErrResyncMode is returned for a resync request whose mode is not one of the two. Nothing was
	// asked of the store.
	ErrResyncMode = errors.New("runevents: no such resync mode")
	// ErrDiscarded is returned by a StateStore that was asked for events of a run and had discarded
	// some of them, or all, because of their age or number. What is left does not tell what state
	// the run is in. Do not ask again: they do not come back.
	ErrDiscarded = errors.New("runevents: events of the run were discarded")
	// ErrNotAdvanced is returned by a resync after which the watermark is where it was, so that it
	// does not count as complete. A paused run stays paused; ask again later.
	ErrNotAdvanced = errors.New("runevents: the resync did not advance the watermark")
	// ErrBadID is returned for an id that a Source drew and that is no UUID v4. Nothing was
	// emitted; the maker of the Source has to draw others.
	ErrBadID = errors.New("runevents: an id that was drawn is not a UUID v4")
)
