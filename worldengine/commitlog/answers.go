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

// IsRefusal reports whether err is about the message itself, so that the next try cannot end
// otherwise unless an operator changes the stream or the server: it, or its header, is larger than
// they take, or it asks for an option that they refuse. All other errors are about the stream, the
// server or the way there (no answer, no room, no leader, a lost race), and pass.
// JetStream's "store failed" (10077) stays out: it says the same of a full disk.
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
