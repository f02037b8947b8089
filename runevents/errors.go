package runevents

import "errors"

var (
	// ErrOtherRun is returned for a record of another run than the projection's. Nothing was
	// projected; group the records by run.
	ErrOtherRun = errors.New("runevents: a record of another run")
	// ErrNoRunSeq is returned for a record without a runSeq, which starts at 1. Nothing was
	// projected; such a record does not come from an append authority.
	ErrNoRunSeq = errors.New("runevents: a record without a runSeq")
)
