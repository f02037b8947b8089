package commitlog

import (
	"context"
	"errors"
	"slices"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
)

// ErrLogUnavailable means that the commit log did not answer in time. The request may have been stored. Send
// the request again with the same key: that is safe, and the answer shows whether it was stored.
var ErrLogUnavailable = errors.New("commitlog: the commit log does not answer")

// ErrStorageFull means that the log's disk is full, or a write to it failed. If the error is
// ErrLogUnavailable too, an earlier try of the append may have been stored; otherwise nothing was.
// Retry when an operator has made room.
var ErrStorageFull = errors.New("commitlog: the storage of the commit log is full")

// ErrNoWorld means that no world has the name.
var ErrNoWorld = errors.New("commitlog: there is no such world")

// ErrContended means that other writers were first in each try of a change. Send the request again.
var ErrContended = errors.New("commitlog: the town, run or settings are changed too often by other writers")

// ErrRecordTooLarge means that the commit would exceed the server's maximal payload. Nothing was stored.
var ErrRecordTooLarge = errors.New("commitlog: the commit record exceeds the largest NATS " +
	"payload")

// ErrUnreadable means that a stream counts a message that it cannot deliver. Run fsck.
var ErrUnreadable = errors.New("commitlog: the last message of the subject was changed on the " +
	"disk of NATS")

// ErrGone means that the log no longer keeps the record: its subject discards its oldest records.
var ErrGone = errors.New("commitlog: the log does not keep the record any more")

// ErrDamaged means that the record was changed on the disk of NATS and cannot be read. fsck names it.
var ErrDamaged = errors.New("commitlog: a record of the log is damaged; fsck names it")

// ErrLostRace means that a guard does not hold: another writer has appended to its subject, or has made or changed
// the log's stream, since both were read. Read and decide again, as Log.RetryLostRaces does.
var ErrLostRace = errors.New("commitlog: another writer was first")

// ErrLogLost means that the log lacks messages that this process has committed or read: the log lost its end,
// or another log replaced it. Nothing is appended to such a log. An operator puts the newer log
// back, or restarts the server to go on without it.
var ErrLogLost = errors.New("the log has lost messages")

// ErrFormat means that the world, or the backup, is stored in a format that this program does not read.
var ErrFormat = errors.New("commitlog: stored by another program")

// ErrHalfRestored means that a restore of the world did not finish. Run the restore again, or restore
// another.
var ErrHalfRestored = errors.New("commitlog: the world is being restored, or was in part: run " +
	"the restore again, or restore another backup")

// JetStream's error codes that its client has no names for.
const (
	accountExceeded      jetstream.ErrorCode = 10002
	noPeers              jetstream.ErrorCode = 10005
	noLeader             jetstream.ErrorCode = 10008
	insufficient         jetstream.ErrorCode = 10023
	storageExceeded      jetstream.ErrorCode = 10047
	storeFailed          jetstream.ErrorCode = 10077
	headerExceedsMaximum jetstream.ErrorCode = 10097
	streamOffline        jetstream.ErrorCode = 10118
	ttlInvalid           jetstream.ErrorCode = 10165
	ttlDisabled          jetstream.ErrorCode = 10166
)

// hasCode reports whether err is an answer of JetStream with one of the error codes.
func hasCode(err error, codes ...jetstream.ErrorCode) bool {
	var api *jetstream.APIError
	return errors.As(err, &api) && slices.Contains(codes, api.ErrorCode)
}

// IsWrongLastSequence reports whether err is JetStream's answer to a guard that did not hold: error
// code 10071, or 10164 on replicated streams.
func IsWrongLastSequence(err error) bool {
	return hasCode(err, jetstream.JSErrCodeStreamWrongLastSequence,
		jetstream.JSErrCodeStreamWrongLastSequenceConstant)
}

// IsRefusal reports whether err is about the message itself: the message or its header is too large
// or malformed, or NATS refuses an option of it. A retry fails the same way unless an operator
// changes the stream or the server. All other errors (no answer, no room, no leader, a lost race)
// are about the stream, the server or the connection, and a retry may succeed. JetStream's "store
// failed" is one of them, since a full disk causes it too.
func IsRefusal(err error) bool {
	return errors.Is(err, nats.ErrMaxPayload) || errors.Is(err, nats.ErrBadSubject) ||
		errors.Is(err, nats.ErrBadHeaderMsg) ||
		hasCode(err, jetstream.JSErrCodeStreamMessageExceedsMaximum, headerExceedsMaximum,
			ttlInvalid, ttlDisabled)
}

// isOutOfRoom reports whether NATS refused a message because the server or the account has no room.
func isOutOfRoom(err error) bool {
	return hasCode(err, accountExceeded, insufficient, storageExceeded, storeFailed)
}

// isDefinite reports whether err proves that the message was not stored. A missing answer proves
// nothing.
func isDefinite(err error) bool {
	var api *jetstream.APIError
	return errors.As(err, &api) || errors.Is(err, ErrRecordTooLarge) ||
		errors.Is(err, ErrStorageFull) || errors.Is(err, jetstream.ErrNoStreamResponse)
}

// isTransient reports whether a failed request to the cluster may succeed later unchanged: the request
// got no answer, or the cluster or the stream at the moment has no leader, or the cluster knows too
// few of its servers, or none that has the stream.
func isTransient(err error) bool {
	return errors.Is(err, context.DeadlineExceeded) ||
		errors.Is(err, jetstream.ErrNoStreamResponse) || hasCode(err, noLeader, noPeers, streamOffline)
}
