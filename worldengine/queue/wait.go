package queue

import (
	"context"
	"errors"
)

// ErrPanicked is the answer if a defect ended the caller's task; the stack is in the server's log.
// Submitting again is safe.
var ErrPanicked = errors.New("worldengine: internal error; it is in the server's log")

// Wait submits work that answers once through done, and returns the answer. If ctx ends first it
// returns ctx's error, and the work goes on unobserved.
func Wait[T any](ctx context.Context, submit func(done func(T, error)) error) (T, error) {
	type outcome struct {
		value T
		err   error
	}
	outcomes := make(chan outcome, 1)
	if err := submit(func(v T, err error) { outcomes <- outcome{v, err} }); err != nil {
		return *new(T), err
	}
	select {
	case o := <-outcomes:
		return o.value, o.err
	case <-ctx.Done():
	}
	select { // an answer that is there counts, also where the time is over
	case o := <-outcomes:
		return o.value, o.err
	default:
		return *new(T), ctx.Err()
	}
}
