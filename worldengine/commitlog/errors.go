package commitlog

import "errors"

// ErrLogUnavailable: the commit log did not answer in time. The request may or may not have been
// stored; sending it again with the same key is safe, and its answer says which.
var ErrLogUnavailable = errors.New("worldengine: the commit log does not answer")

// ErrStorageFull: the storage of the log takes nothing more: its disk is full, or a write to it
// failed. With ErrLogUnavailable beside it, an earlier try of the same append may have been stored;
// otherwise nothing was. Ask again when an operator has made room.
var ErrStorageFull = errors.New("worldengine: the storage of the commit log is full")

// ErrNoWorld: there is no world of the name.
var ErrNoWorld = errors.New("worldengine: there is no such world")

// ErrContended: other writers kept changing the town while this one judged. Send the request
// again.
var ErrContended = errors.New("worldengine: the town is changed too often by other writers")

// ErrRecordTooLarge: the commit would exceed the server's maximal payload. Nothing was stored.
var ErrRecordTooLarge = errors.New("worldengine: the commit record exceeds the largest NATS " +
	"payload")

// ErrTownDamaged: the log holds the town, but its last message cannot be read: NATS found that it
// was changed on the disk, or the state in it is not the one that its hash names. Nothing is judged
// or put. Run fsck; it says how to mend the town.
var ErrTownDamaged = errors.New("worldengine: the stored state of the town is damaged; fsck " +
	"says where")

// ErrLostRace: another writer changed the town since its state was read. Load it and judge again;
// see Log.Retry. It never leaves the engine.
var ErrLostRace = errors.New("worldengine: lost the race for a town")

// ErrLogLost: the log has lost its end, or another log was put in its place: it does not have the
// messages that this process has committed or read. Nothing is appended to such a log. An operator
// puts the newer log back, or starts the server again to go on without it.
var ErrLogLost = errors.New("the log has lost messages")
