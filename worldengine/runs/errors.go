package runs

import "errors"

// ErrUnknownRun: the log keeps no events of that run, or not the first of those that were asked
// for: it is too old.
var ErrUnknownRun = errors.New("worldengine: there is no such run")

// ErrRunDamaged: the log has the run, but one of its records cannot be read: it was changed on the
// disk of NATS. fsck names the record.
var ErrRunDamaged = errors.New("worldengine: the stored events of the run are damaged; fsck " +
	"says where")
