package follow

import (
	"context"
	"errors"
	"fmt"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
)

// ErrLogLost: the log has lost its end, or another log was put in its place: it does not have what
// the derived stream was derived from, or what this process knows of it. What is derived from such
// a log would be lost among what is there already, so the follower stands still, nothing counts as
// followed, and it tries again. An operator has to take away what the log does not have:
// handoffctl fsck --repair takes it from the derived streams, a new start of the server from its
// memory.
var ErrLogLost = errors.New("the log has lost messages")

// lostTries is how many tries in a row must find the log without its end before it counts as lost:
// a new leader of a replicated log may not have come to its end yet.
const lostTries = 5

// checkLog returns ErrLogLost where the log cannot be what the derived stream was derived from up
// to pos. The log only grows, so its end, read after pos, must not be before it; and where the log
// has grown again since it lost its end, another message stands in the place of the one that was
// followed last.
func (f *Follower) checkLog(ctx context.Context, pos position) error {
	info, err := f.config.Log.Info(ctx)
	if err != nil {
		return fmt.Errorf("follow: state of the log: %w", err)
	}
	f.logEnd = info.State.LastSeq
	if f.config.CheckLog != nil {
		if err := f.config.CheckLog(ctx, f.config.Log); errors.Is(err, ErrLogLost) {
			return f.loseLog(err)
		} else if err != nil {
			return err
		}
	}
	if pos.logSeq == 0 {
		return nil
	}
	if pos.logSeq > f.logEnd {
		return f.loseLog(fmt.Errorf("%w: %s was derived from it up to sequence %d, and it ends "+
			"at %d; run handoffctl fsck --repair",
			ErrLogLost, f.config.Name, pos.logSeq, f.logEnd))
	}
	raw, err := Get(ctx, f.config.Log, pos.logSeq)
	if errors.Is(err, jetstream.ErrMsgNotFound) {
		return nil // it has left the log's history
	}
	if err != nil {
		return fmt.Errorf("follow: log sequence %d: %w", pos.logSeq, err)
	}
	derived, err := f.config.Derive(Stored(raw))
	if err != nil || pos.isOf(derived) {
		return nil // what cannot be read says nothing against it
	}
	return f.loseLog(fmt.Errorf("%w: at sequence %d is another one than %s was derived from; run "+
		"handoffctl fsck --repair", ErrLogLost, pos.logSeq, f.config.Name))
}

// isOf reports whether the last derived message is one of those that are derived from its log
// message, by what names it. What else it says may have been written by another version of the
// program.
func (p *position) isOf(derived []Message) bool {
	if p.parts > len(derived) {
		return false
	}
	m := &derived[p.parts-1]
	return m.Subject == p.subject && (m.ID == "" || m.ID == p.id)
}

// loseLog makes nothing count as followed before the log is found again, and then not before the
// follower comes to where the log ends now.
func (f *Follower) loseLog(err error) error {
	f.mu.Lock()
	f.floor, f.followed, f.still = f.logEnd, 0, true
	f.mu.Unlock()
	if f.lost++; f.lost == lostTries {
		f.config.Logger.Error("LOG_LOST: nothing is followed", "error", err)
		f.mu.Lock()
		f.told = err
		f.mu.Unlock()
		if f.config.LogLost != nil {
			f.config.LogLost(err)
		}
	}
	return err
}

// findLog is called where the log is what the derived stream was derived from.
func (f *Follower) findLog() {
	f.lost = 0
	f.mu.Lock()
	f.still, f.told = false, nil
	f.mu.Unlock()
}

// Lost returns ErrLogLost as it was handed to Config.LogLost, and nil once the log is found.
func (f *Follower) Lost() error {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.told
}

// Stored makes of a message that was got by its sequence what a consumer would have delivered.
// There is nothing to acknowledge.
func Stored(raw *jetstream.RawStreamMsg) jetstream.Msg { return storedMsg{raw: raw} }

type storedMsg struct {
	jetstream.Msg
	raw *jetstream.RawStreamMsg
}

func (m storedMsg) Subject() string      { return m.raw.Subject }
func (m storedMsg) Headers() nats.Header { return m.raw.Header }
func (m storedMsg) Data() []byte         { return m.raw.Data }

func (m storedMsg) Metadata() (*jetstream.MsgMetadata, error) {
	return &jetstream.MsgMetadata{
		Sequence: jetstream.SequencePair{Stream: m.raw.Sequence}, Timestamp: m.raw.Time,
	}, nil
}
