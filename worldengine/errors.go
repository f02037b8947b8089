package worldengine

import (
	"errors"
	"fmt"
)

// Errors that a caller of the engine meets. Bad input is a *schemas.ValidationError; every other
// error is the engine's own trouble, and whoever asked may ask again: nothing was changed, or the
// same question finds what was done.
var (
	// ErrOverloaded: a bounded queue is full. Ask again after a pause.
	ErrOverloaded = errors.New("worldengine: too many requests are waiting for this town or world")
	// ErrStopping: the engine is draining. Ask another instance, or this one after its restart.
	ErrStopping = errors.New("worldengine: the engine is stopping")
	// ErrLogUnavailable: the commit log did not answer, or not definitely, in time. What was asked
	// may or may not have been stored; asking again with the same key is safe and tells.
	ErrLogUnavailable = errors.New("worldengine: the commit log does not answer")
	// ErrReceiptsBehind: the receipts have not followed the log yet, so nobody knows whether a key
	// is free. Nothing was judged; ask again.
	ErrReceiptsBehind = errors.New("worldengine: the receipts have not followed the log yet")
	// ErrContended: other instances kept moving the town while this one judged. Ask again.
	ErrContended = errors.New("worldengine: the town is changed too often by other instances")
	// ErrRecordTooLarge: the commit would exceed the server's maximal payload. Nothing was stored.
	ErrRecordTooLarge = errors.New("worldengine: the commit record exceeds the largest NATS payload")
	// ErrInProgress: a handoff with this key is accepted and being applied. Ask again: there will be a
	// result.
	ErrInProgress = errors.New("worldengine: the handoff is accepted and its command is being applied; ask again")
	// ErrRunCancelled: an operator cancelled the run of a handoff that was waiting. Nothing was judged
	// and its key is free.
	ErrRunCancelled = errors.New("worldengine: an operator cancelled the run while the handoff was waiting")
	// ErrUnknownTown: there is no such town.
	ErrUnknownTown = errors.New("worldengine: there is no such town")
	// ErrTownDamaged: the log holds the town, but its last message cannot be read: NATS found that it was
	// changed, or the state in it is not the one that its hash names. Nothing is judged or put. Restore the
	// log from a backup.
	ErrTownDamaged = errors.New("worldengine: the stored state of the town is damaged; fsck says where")
	// ErrTownExists: a town is created that exists already. Give expectedSnapshotHash to replace it.
	ErrTownExists = errors.New("worldengine: the town exists; " +
		"give expectedSnapshotHash, the hash of the state to replace")
	// ErrUnknownResult: no handoff with that key was accepted within the dedupe retention.
	ErrUnknownResult = errors.New("worldengine: no handoff with this key was accepted")
	// ErrUnknownRun: no events of that run are kept, or not the first of those that were asked for: it is
	// too old.
	ErrUnknownRun = errors.New("worldengine: there is no such run")
	// ErrRunDamaged: the event stream has the run, but its last event cannot be read: NATS found that it was
	// changed on its disk. A repair makes the events again from the log, as far as that has them.
	ErrRunDamaged = errors.New("worldengine: the stored events of the run are damaged; fsck --repair makes them again")
	// ErrEventsBehind: the run may exist, but the event stream has not followed the log to it yet.
	ErrEventsBehind = errors.New("worldengine: the run events have not followed the log yet")
)

// ConflictError says that a town is not in the state that a put expects. Get it and put again.
type ConflictError struct{ Expected, Actual string }

func (e *ConflictError) Error() string {
	return fmt.Sprintf("worldengine: the town's snapshotHash is %s, not the expected %s", e.Actual, e.Expected)
}

// RegressionError says that a put would lower a town's day. Days only move on.
type RegressionError struct{ Day, Current int64 }

func (e *RegressionError) Error() string {
	return fmt.Sprintf("worldengine: the town is at day %d, so it cannot be put back to day %d", e.Current, e.Day)
}

// keyTakenError says that another instance accepted the key of a handoff at sequence seq of the log,
// so lately that no receipt told: wait for it and judge again. It never leaves the engine.
type keyTakenError struct{ seq uint64 }

func (e *keyTakenError) Error() string {
	return fmt.Sprintf("worldengine: the key was accepted at log sequence %d", e.seq)
}

// What a turn of a town's work ends with, beside an answer. They never leave the engine.
var (
	// errRest: the work cannot go on yet.
	errRest = errors.New("worldengine: the town cannot go on yet")
	// errApplying: the handoff is accepted, and whoever applies it answers.
	errApplying = errors.New("worldengine: the command is being applied")
)

// errLostRace says that another instance changed the town since its state was read: load it and
// judge again. It never leaves the engine.
var errLostRace = errors.New("worldengine: lost the race for a town")
