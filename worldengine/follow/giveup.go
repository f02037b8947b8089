package follow

import (
	"context"
	"errors"
	"fmt"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
)

// DefaultAttempts is how often a message may be refused before it is given up.
const DefaultAttempts = 8

// DeadLetter is what a follower gives up: a message derived from the log that the derived stream
// does not take, or a message of the log from which nothing can be derived.
type DeadLetter struct {
	// Stream is the name of the derived stream.
	Stream string
	// LogSeq and LogPart are the message's place: that of the log message, and among those derived
	// from it. LogPart is 0 for a message of the log.
	LogSeq  uint64
	LogPart int
	// Subject, Header and Data are the derived message's, or, where Unreadable is set, those of
	// the message of the log.
	Subject    string
	Header     nats.Header
	Data       []byte
	Unreadable bool
	// Reason is why it was given up.
	Reason error
}

// place is the place of a derived message: its log message, and its part of what is derived from
// that one.
type place struct {
	logSeq uint64
	part   int
}

// IsRefusal reports whether err is about the message itself, so that the next try cannot end
// otherwise unless an operator changes the stream or the server: it, or its header, is larger than
// they take, or they do not take what it asks for. What is not in this list is about the stream,
// the server or the way there (no answer, no room, no leader, a lost race), and passes.
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

// refused counts that the derived stream refused m, and gives it up after the last attempt. It
// returns nil when the follower may go on behind m.
func (f *Follower) refused(ctx context.Context, m *nats.Msg, at place, reason error) error {
	if f.config.GiveUp == nil {
		return reason
	}
	if n := f.refusals[at] + 1; n < f.config.Attempts {
		f.refusals[at] = n
		return fmt.Errorf("part %d of log sequence %d, attempt %d of %d: %w",
			at.part, at.logSeq, n, f.config.Attempts, reason)
	}
	return f.giveUp(ctx, at, DeadLetter{
		LogSeq: at.logSeq, LogPart: at.part, Subject: m.Subject, Header: m.Header, Data: m.Data,
		Reason: reason,
	})
}

// unreadable gives up a message of the log that Derive cannot read. It returns nil when the
// follower may go on behind it.
func (f *Follower) unreadable(
	ctx context.Context, msg jetstream.Msg, logSeq uint64, reason error,
) error {
	if f.config.GiveUp == nil {
		f.config.Logger.Error("a message of the log cannot be read and is skipped",
			"subject", msg.Subject(), "sequence", logSeq, "error", reason)
		return nil
	}
	return f.giveUp(ctx, place{logSeq: logSeq}, DeadLetter{
		LogSeq: logSeq, Subject: msg.Subject(), Header: msg.Headers(), Data: msg.Data(),
		Unreadable: true, Reason: reason,
	})
}

// giveUp hands a letter over, once as far as this follower remembers.
func (f *Follower) giveUp(ctx context.Context, at place, letter DeadLetter) error {
	if f.refusals[at] >= f.config.Attempts {
		return nil // given up before, and nothing behind it has moved the position on yet
	}
	letter.Stream = f.config.Name
	if err := f.config.GiveUp(ctx, letter); err != nil {
		return fmt.Errorf("follow: give up part %d of log sequence %d: %w", at.part, at.logSeq, err)
	}
	f.refusals[at] = f.config.Attempts
	f.givenUp++
	f.config.Logger.Warn("a message was given up", "subject", letter.Subject,
		"sequence", letter.LogSeq, "part", letter.LogPart, "error", letter.Reason)
	return nil
}

// forgetBefore forgets the refusals of messages that the position has passed: they do not come
// again.
func (f *Follower) forgetBefore(pos position) {
	for at := range f.refusals {
		if at.logSeq < pos.logSeq {
			delete(f.refusals, at)
		}
	}
}
