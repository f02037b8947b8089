package commitlog

import (
	"context"
	"strconv"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"worldengine/runevents"
	"worldengine/worldengine/internal/kit/layout"
)

// PersistedAt returns when the append authority persisted a message of the log: the time in its
// headers, or, if that is damaged, the time at which the stream stored the message.
func PersistedAt(header nats.Header, stored time.Time) time.Time {
	if at, err := time.Parse(time.RFC3339, header.Get(layout.AtHeader)); err == nil {
		return at
	}
	return stored
}

// GuardOf returns the sequence that guarded the append of a message, by its headers; ok is false if
// it had no guard.
func GuardOf(header nats.Header) (guard uint64, ok bool) {
	guard, err := strconv.ParseUint(header.Get(jetstream.ExpectedLastSubjSeqHeader), 10, 64)
	return guard, err == nil
}

// stamp sets the persistedAt of a message before its append: the append authority's time, but never
// before the persistedAt of the town's or run's last message (RunEvents v2, section 2.3). A message
// that is appended again keeps its time.
func (l *Log) stamp(ctx context.Context, msg *nats.Msg) {
	if msg.Header.Get(layout.AtHeader) != "" {
		return
	}
	now := time.Now
	if l.Now != nil {
		now = l.Now
	}
	at := now()
	if l.LastPersistedAt != nil {
		if last := l.LastPersistedAt(ctx, msg.Subject, msg.Header); last.After(at) {
			at = last
		}
	}
	msg.Header[layout.AtHeader] = []string{runevents.Timestamp(at)}
}

// EpochOf returns the decision epoch in the headers of a town's message, 0 if they have none.
func EpochOf(header nats.Header) int64 {
	epoch, err := strconv.ParseInt(header.Get(layout.EpochHeader), 10, 64)
	if err != nil {
		return 0
	}
	return epoch
}
