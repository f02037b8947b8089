package queue

import "errors"

// Errors of a queue that refuses a task, which then does not run.
var (
	// ErrOverloaded: the town, or the whole queue, has reached its bound. Submit again after a
	// pause.
	ErrOverloaded = errors.New("worldengine: too many requests are waiting for this town or world")
	// ErrStopping: the queue is draining. Another instance, or this one after its restart, takes
	// the task.
	ErrStopping = errors.New("worldengine: the engine is stopping")
)
