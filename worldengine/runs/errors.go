package runs

import (
	"errors"
)

// ErrRunCancelled: the run of a handoff that was waiting was cancelled: by an operator, or because
// its server was taken for dead. Nothing was judged and the key is free.
var ErrRunCancelled = errors.New("worldengine: the run was cancelled while the handoff was waiting")

// ErrUnknownRun: no events of that run are kept, or not the first of those that were asked for: it
// is too old.
var ErrUnknownRun = errors.New("worldengine: there is no such run")

// ErrRunDamaged: the event stream has the run, but its last event cannot be read: NATS found that
// it was changed on its disk. A repair makes the events again from the log, as far as that has
// them.
var ErrRunDamaged = errors.New("worldengine: the stored events of the run are damaged; fsck " +
	"--repair makes them again")

// ErrEventsBehind: the run may exist, but the event stream has not followed the log to it yet.
var ErrEventsBehind = errors.New("worldengine: the run events have not followed the log yet")
