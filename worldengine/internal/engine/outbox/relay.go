// Package outbox copies the run events of the log into a JetStream stream, for durable consumers.
//
// A Relay reads the log in order and publishes each run event as a message of its own, to
// runevents.v2.<world>.<town token>.<run id> in the stream WORLD_<world>_RUNEVENTS. The message's
// headers are Event-Type, Nats-Msg-Id (the event's id), the trace of its run, its place in the log
// (Log-Seq and Log-Part), and Kind: events if another producer than the engine appended the event.
//
// The stream has every event once, in the order of the log, after a crash at any point and with any
// number of relays. A relay keeps no position of its own: the stream's last message is its position.
// Each message is guarded by the message before it, so a relay that loses a race reads the position
// again. Consumers see each event at least once, and recognise a repeated one by its id.
package outbox

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"sync/atomic"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"worldengine/runevents"
	"worldengine/worldengine/internal/core/runlog"
	"worldengine/worldengine/internal/kit/backoff"
	"worldengine/worldengine/internal/store/commitlog"
)

// pauses are a relay's waits; tests shorten them.
type pauses struct {
	// min and max bound the pauses between tries, which double, with a random part.
	min, max time.Duration
	// idle is the longest wait for the first message of a window. By default it is longer than two
	// heartbeats: Next notices a lost pull request if two heartbeats are missing in one call.
	idle time.Duration
	// check is the pause between an idle relay's looks at its stream and the log, so that a stream that
	// was deleted or purged is filled again without a new event.
	check time.Duration
}

var defaultPauses = pauses{
	min: 50 * time.Millisecond, max: 5 * time.Second,
	idle: 3 * commitlog.HeartbeatInterval, check: 5 * time.Second,
}

// ackTimeout bounds the wait for the ack of a message.
const ackTimeout = 10 * time.Second

// DefaultAttempts is how often the stream may refuse an event before it is a dead letter.
const DefaultAttempts = 8

// Config configures a Relay.
type Config struct {
	// Conn is the connection to the NATS that has the log and gets the events.
	Conn  *nats.Conn
	World string
	// Replicas is the stream's number of replicas, Retention the age at which its events expire
	// (0 for never), and Limit the number of events that it keeps (0 for all).
	Replicas  int
	Retention time.Duration
	Limit     int64
	// Attempts is how often the stream may refuse an event before the event becomes a dead letter;
	// 0 for DefaultAttempts.
	Attempts int
	// Raise raises the alerts about dead letters and a lost log. It must not block; nil raises none.
	Raise func(runevents.Alert)
	// Logger is for operators; nil for slog.Default.
	Logger *slog.Logger
}

// Relay publishes the run events of a world. Its methods are safe for concurrent use.
type Relay struct {
	config              Config
	js                  jetstream.JetStream
	stream, deadLetters jetstream.StreamConfig // of the events, and of the dead letters
	pauses              pauses

	// Only Run uses these.
	identity  string              // of the log that was opened last
	opened    bool                // the stream exists with its present settings
	refusals  map[logPosition]int // of events that the stream lacks; Attempts for a given-up event
	progress  bool                // the present try has stored an event, or given one up
	lostTries int                 // tries in a row that found a log without its end

	position atomic.Uint64
}

// New makes a Relay; Run starts it.
func New(config Config) (*Relay, error) {
	config.Attempts = cmp.Or(config.Attempts, DefaultAttempts)
	config.Logger = cmp.Or(config.Logger, slog.Default())
	if config.Raise == nil {
		config.Raise = func(runevents.Alert) {}
	}
	js, err := jetstream.New(config.Conn, jetstream.WithPublishAsyncTimeout(ackTimeout),
		jetstream.WithPublishAsyncMaxPending(4*(window+runlog.MaxAppend)))
	if err != nil {
		return nil, fmt.Errorf("outbox: JetStream: %w", err)
	}
	return &Relay{
		config: config, js: js, refusals: map[logPosition]int{},
		stream:      StreamConfig(config.World, config.Retention, config.Limit, config.Replicas),
		deadLetters: DeadLetterConfig(config.World, config.Replicas),
		pauses:      defaultPauses,
	}, nil
}

// Position returns the log sequence up to which all events are published or given up. It decreases
// if the stream loses events.
func (r *Relay) Position() uint64 { return r.position.Load() }

var (
	errRace    = errors.New("outbox: another relay was first")
	errGivenUp = errors.New("outbox: an event was given up")
	errMoved   = errors.New("outbox: the stream is not as the relay left it")
	errGap     = errors.New("outbox: messages of the log were lost on their way")
)

// Run publishes until ctx is done. It retries errors with growing pauses, for ever. It must be called
// once.
func (r *Relay) Run(ctx context.Context) {
	pauses := backoff.Backoff{Min: r.pauses.min, Max: r.pauses.max}
	for ctx.Err() == nil {
		r.progress = false
		err := r.publishUntilError(ctx)
		if r.progress {
			pauses.Reset()
		}
		if ctx.Err() != nil || errors.Is(err, errGivenUp) {
			continue
		}
		pause, level := pauses.Next(), slog.LevelWarn
		if errors.Is(err, errRace) {
			level = slog.LevelDebug
		}
		r.config.Logger.Log(ctx, level, "run events cannot be published; will try again",
			"stream", r.stream.Name, "error", err, "pause", pause)
		_ = backoff.Sleep(ctx, pause)
	}
}

// publishUntilError reads the position and publishes from there until an error.
func (r *Relay) publishUntilError(ctx context.Context) error {
	stream, log, err := r.open(ctx)
	if err != nil {
		return err
	}
	pos, err := readStreamEnd(ctx, stream)
	if err != nil {
		return err
	}
	if err := r.checkLog(ctx, log, pos); err != nil {
		return err
	}
	s := session{Relay: r, stream: stream, log: log, start: pos, end: pos}
	return s.run(ctx)
}

// open returns the log and the stream of the events. It creates a missing stream of events, and on
// the first call updates its settings.
func (r *Relay) open(ctx context.Context) (stream, log jetstream.Stream, err error) {
	if log, err = commitlog.OpenLog(ctx, r.js, r.config.World); err != nil {
		return nil, nil, err
	}
	if identity := commitlog.Identity(log.CachedInfo().Config); identity != r.identity {
		clear(r.refusals) // they have positions in another log
		r.identity = identity
	}
	if r.opened {
		stream, err = r.js.Stream(ctx, r.stream.Name)
	}
	if !r.opened || errors.Is(err, jetstream.ErrStreamNotFound) {
		stream, err = commitlog.OpenStream(ctx, r.js, r.stream, r.config.Logger)
	}
	r.opened = r.opened || err == nil
	return stream, log, err
}

// notStored returns the error with which a try ends after an event was not stored. It gives up an
// event that the stream has refused Attempts times.
func (r *Relay) notStored(ctx context.Context, event *nats.Msg, at logPosition, reason error) error {
	n := r.refusals[at] + 1
	switch {
	case isRace(reason):
		return errRace
	case !commitlog.IsRefusal(reason):
		return fmt.Errorf("outbox: publish %s, event %d of log sequence %d: %w", event.Subject,
			at.part, at.logSeq, reason)
	case n < r.config.Attempts:
		r.refusals[at] = n
		return fmt.Errorf("outbox: event %d of log sequence %d is refused, attempt %d of %d: %w",
			at.part, at.logSeq, n, r.config.Attempts, reason)
	}
	return cmp.Or(r.giveUp(ctx, deadLetter{
		at: at, msg: event, reason: reason}), errGivenUp)
}

// giveUp keeps a dead letter, unless it is kept already. Later tries skip its place.
func (r *Relay) giveUp(ctx context.Context, l deadLetter) error {
	if r.givenUp(l.at) {
		return nil
	}
	if err := r.storeDeadLetter(ctx, &l); err != nil {
		return fmt.Errorf("outbox: part %d of log sequence %d cannot be given up: %w",
			l.at.part, l.at.logSeq, err)
	}
	r.refusals[l.at], r.progress = r.config.Attempts, true
	r.config.Logger.Warn("a dead letter was kept", "subject", l.msg.Subject,
		"sequence", l.at.logSeq, "part", l.at.part, "error", l.reason)
	return nil
}

func (r *Relay) givenUp(at logPosition) bool { return r.refusals[at] >= r.config.Attempts }
