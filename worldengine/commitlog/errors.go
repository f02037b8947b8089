package commitlog

import (
	"errors"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
)

// ErrLogUnavailable: the commit log did not answer in time. The request may have been stored; send
// it again with the same key, which is safe: the answer tells.
var ErrLogUnavailable = errors.New("worldengine: the commit log does not answer")

// ErrStorageFull: the log's disk is full, or a write to it failed. With ErrLogUnavailable beside
// it, an earlier try of the same append may have been stored; otherwise nothing was. Retry when an
// operator has made room.
var ErrStorageFull = errors.New("worldengine: the storage of the commit log is full")

// ErrNoWorld: there is no world of the name.
var ErrNoWorld = errors.New("worldengine: there is no such world")

// ErrContended: other writers kept changing the town. Send the request again.
var ErrContended = errors.New("worldengine: the town is changed too often by other writers")

// ErrRecordTooLarge: the commit would exceed the server's maximal payload. Nothing was stored.
var ErrRecordTooLarge = errors.New("worldengine: the commit record exceeds the largest NATS " +
	"payload")

// ErrTownDamaged: the town's last message cannot be read: NATS found that it was changed on the
// disk, or its state does not match its hash. Nothing is judged or put. Run fsck, which names the
// cure.
var ErrTownDamaged = errors.New("worldengine: the stored state of the town is damaged; fsck " +
	"says where")

// ErrLostRace: another writer changed the town since its state was read. Load it and judge again;
// see Log.Retry. It never leaves the engine.
var ErrLostRace = errors.New("worldengine: lost the race for a town")

// ErrLogLost: the log lacks messages that this process has committed or read: it lost its end, or
// was replaced by another log. Nothing is appended to such a log. An operator puts the newer log
// back, or restarts the server to go on without it.
var ErrLogLost = errors.New("the log has lost messages")

// IsWrongLastSequence reports whether err is JetStream's answer to a guard that did not hold:
// 10071, or 10164 on replicated streams.
func IsWrongLastSequence(err error) bool {
	var api *jetstream.APIError
	return errors.As(err, &api) && (api.ErrorCode == jetstream.JSErrCodeStreamWrongLastSequence ||
		api.ErrorCode == jetstream.JSErrCodeStreamWrongLastSequenceConstant)
}

// IsRefusal reports whether err is about the message itself: it, or its header, is too large, or it
// has an option that is refused. A retry fails the same way unless an operator changes the stream
// or the server. All other errors are about the stream, the server or the connection (no answer, no
// room, no leader, a lost race), and pass. JetStream's "store failed" (10077) is none of them,
// since a full disk gives it too.
func IsRefusal(err error) bool {
	if errors.Is(err, nats.ErrMaxPayload) || errors.Is(err, nats.ErrBadSubject) ||
		errors.Is(err, nats.ErrBadHeaderMsg) {
		return true
	}
	var api *jetstream.APIError
	if !errors.As(err, &api) {
		return false
	}
	const (
		headerExceedsMaximum = 10097
		ttlInvalid           = 10165
		ttlDisabled          = 10166
	)
	switch api.ErrorCode {
	case jetstream.JSErrCodeStreamMessageExceedsMaximum, headerExceedsMaximum,
		ttlInvalid, ttlDisabled:
		return true
	}
	return false
}
