package commitlog

import (
	"errors"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
)

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
