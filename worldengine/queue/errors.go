package queue

import "errors"

// Errors of a queue that does not take a task. The task does not run.
var (
	// ErrOverloaded: the town, or the queue as a whole, has as many tasks as it may. Submit again
	// after a pause.
	ErrOverloaded = errors.New("worldengine: too many requests are waiting for this town or world")
	// ErrStopping: the queue is being drained. Another instance, or this one after its restart,
	// takes the task.
	ErrStopping = errors.New("worldengine: the engine is stopping")
)
