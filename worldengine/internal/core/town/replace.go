package town

import (
	"errors"
	"fmt"
)

var (
	// ErrUnknown means that there is no such town.
	ErrUnknown = errors.New("town: there is no such town")

	// ErrExists means that the town to create exists already. Give expectedSnapshotHash to replace it.
	ErrExists = errors.New("town: the town exists; " +
		"give expectedSnapshotHash, the hash of the state to replace")
)

// ConflictError says that a town is not in the state that a put expects. Get the town and put
// again.
type ConflictError struct{ Expected, Actual string }

// Error names the two hashes.
func (e *ConflictError) Error() string {
	return fmt.Sprintf("town: the town's snapshotHash is %s, not the expected %s",
		e.Actual, e.Expected)
}

// RegressionError says that a put would lower a town's day. Days only move on.
type RegressionError struct{ Day, Current int64 }

// Error names the two days.
func (e *RegressionError) Error() string {
	return fmt.Sprintf("town: the town has reached day %d, so it cannot be put back to day %d",
		e.Current, e.Day)
}

// CheckReplace returns an error if state may not take the place of current, which is the zero State
// if there is no town. If expected is "", a town is created; otherwise the state with that hash is
// replaced. The error is ErrUnknown, ErrExists, *ConflictError or *RegressionError.
func (state State) CheckReplace(current State, expected string) error {
	switch {
	case expected == "" && current.Exists():
		return ErrExists
	case expected == "":
		return nil
	}
	if err := current.CheckHash(expected); err != nil {
		return err
	}
	if state.Epoch() < current.Epoch() {
		return &RegressionError{Day: state.Epoch(), Current: current.Epoch()}
	}
	return nil
}

// CheckHash returns ErrUnknown if there is no town, and *ConflictError if its state has another hash.
func (state State) CheckHash(expected string) error {
	switch {
	case !state.Exists():
		return ErrUnknown
	case state.Hash != expected:
		return &ConflictError{Expected: expected, Actual: state.Hash}
	}
	return nil
}
