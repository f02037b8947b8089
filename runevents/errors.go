package runevents

import "errors"

var (
	// ErrOtherRun is returned for a record of another run than the projection's. Nothing was
	// projected; group the records by run.
	ErrOtherRun = errors.New("runevents: a record of another run")
	// ErrNoRunSeq is returned for a record without a runSeq, which starts at 1. Nothing was
	// projected; such a record does not come from an append authority.
	ErrNoRunSeq = errors.New("runevents: a record without a runSeq")
	// ErrBadID is returned if a Source made an id that is no UUID v4. Nothing was emitted; the
	// Source has to be fixed.
	ErrBadID = errors.New("runevents: an id that was drawn is not a UUID v4")
)
