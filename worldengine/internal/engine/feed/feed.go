// Package feed shows the commits of a world's log to its readers: live, as one message a commit,
// and in pages from any cursor (docs/contracts.md, "Reading events"). It stores nothing.
package feed

import (
	"context"
	"log/slog"
	"sync/atomic"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"worldengine/worldengine/internal/store/index"
	"worldengine/worldengine/internal/store/records"
	"worldengine/worldengine/wire"
)

const (
	// queueSize bounds the commits that wait to be published.
	queueSize = 1024
	// wakeInterval is the pause of a reader that was woken by commits that it does not want.
	wakeInterval = 10 * time.Millisecond
)

// Config configures a Feed. Every member but HasSubscribers must be set.
type Config struct {
	Log   *records.Log
	Index *index.Index // of the log
	// Publish publishes a live message. It must not block.
	Publish func(subject string, data []byte) error
	// HasSubscribers reports whether a subject of live messages has a listener. If it is nil, all live
	// messages are published.
	HasSubscribers func(subject string) bool
	// OnDamaged is called with each unreadable commit of a page, and the reason.
	OnDamaged func(seq uint64, err error)
	Logger    *slog.Logger
}

// Feed publishes the commits of its server live, and serves pages of the log. It is safe for
// concurrent use.
type Feed struct {
	config   Config
	appended chan *jetstream.RawStreamMsg
	missed   atomic.Int64
}

// New makes a feed; Run starts it.
func New(config Config) *Feed {
	return &Feed{config: config, appended: make(chan *jetstream.RawStreamMsg, queueSize)}
}

// Appended publishes a message that this server has stored in the log. It never blocks: if too many
// commits wait, Missed counts the message.
func (f *Feed) Appended(seq uint64, msg *nats.Msg) {
	commit := &jetstream.RawStreamMsg{
		Subject: msg.Subject, Sequence: seq, Header: msg.Header, Data: msg.Data,
	}
	select {
	case f.appended <- commit:
	default:
		f.missed.Add(1)
	}
}

// Missed counts this server's commits that were not published live.
func (f *Feed) Missed() int64 { return f.missed.Load() }

// Run publishes commits until ctx is done. Before it returns, it publishes the commits that wait.
func (f *Feed) Run(ctx context.Context) {
	for {
		select {
		case commit := <-f.appended:
			f.publish(commit)
		case <-ctx.Done():
			for len(f.appended) > 0 {
				commit := <-f.appended
				f.publish(commit)
			}
			return
		}
	}
}

func (f *Feed) publish(commit *jetstream.RawStreamMsg) {
	subject := wire.EventsSubject(f.config.Log.World, TownToken(commit.Subject, commit.Header))
	if f.config.HasSubscribers != nil && !f.config.HasSubscribers(subject) {
		return
	}
	data, err := Message(commit)
	if err == nil {
		err = f.config.Publish(subject, data)
	}
	if err != nil {
		f.missed.Add(1)
		f.config.Logger.Warn("a commit is not published live; event.list has it",
			"sequence", commit.Sequence, "error", err)
	}
}
