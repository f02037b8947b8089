package queue

import (
	"context"
	"errors"
)

// ErrPanicked is the answer if a defect ended the caller's task; the stack is in the server's log.
// Submitting again is safe.
var ErrPanicked = errors.New("queue: internal error; it is in the server's log")

// Answerer gets the answer to submitted work once: the value, or the error that prevented the work.
type Answerer[T any] interface{ Answer(value T, err error) }

// Future is the Answerer of a caller that waits.
type Future[T any] chan reply[T]

type reply[T any] struct {
	value T
	err   error
}

// NewFuture returns a Future for one answer.
func NewFuture[T any]() Future[T] { return make(Future[T], 1) }

// Answer implements Answerer.
func (r Future[T]) Answer(value T, err error) { r <- reply[T]{value, err} }

// Wait returns the answer. If ctx ends first, it returns ctx's error, and the work goes on.
func (r Future[T]) Wait(ctx context.Context) (T, error) {
	select {
	case got := <-r:
		return got.value, got.err
	case <-ctx.Done():
	}
	select { // an answer that is there counts even if ctx has ended
	case got := <-r:
		return got.value, got.err
	default:
		return *new(T), ctx.Err()
	}
}
