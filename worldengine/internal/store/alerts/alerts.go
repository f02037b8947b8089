// Package alerts raises the alerts of a world, keeps them, and stores acknowledgements.
//
// An alert goes to the server's log (slog), to the stream WORLD_<world>_ALERTS, and to
// Config.Notify. The stream is bounded, and created again if it is missing.
package alerts

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"sync"
	"time"

	"github.com/go-json-experiment/json"
	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"worldengine/runevents"
	"worldengine/worldengine/internal/kit/backoff"
	"worldengine/worldengine/internal/kit/layout"
	"worldengine/worldengine/internal/kit/phrase"
	"worldengine/worldengine/internal/kit/protocol"
	"worldengine/worldengine/internal/kit/ratelimit"
	"worldengine/worldengine/internal/kit/recent"
	"worldengine/worldengine/internal/store/commitlog"
	"worldengine/worldengine/internal/store/sidestream"
	"worldengine/worldengine/messages"
	"worldengine/worldengine/wire"
)

// Bounds of the alerts.
const (
	maxAlertBytes = 32 << 20
	// Retention is how long alerts are kept, and by default the run events that others append: a projector
	// that finds such an event after the alert about it has expired raises the alert again.
	Retention = 30 * 24 * time.Hour
	// Within rateWindow, at most MaxPerTown alerts of one code are raised about one producer's
	// events in one town, at most maxOfAll alerts about all producers' events, and at most
	// maxOfAll alerts about the engine's events. Others are raised later, if their caller raises them
	// again.
	MaxPerTown = 30
	maxOfAll   = 120
	rateWindow = time.Minute
	// MaxKept is how many alerts of each code the stream keeps, so that a flood of one code removes no
	// alert of another. A projector that starts again raises fewer alerts than MaxKept.
	MaxKept = 1_000
	// MaxQueued is how many alerts of each code may wait to be published. queueSize is the room of
	// the queue; all codes together cannot fill it.
	MaxQueued = 64
	queueSize = 64 * MaxQueued
	// maxRemembered is how many alerts are remembered, so that each is raised once.
	maxRemembered = 20_000
	// maxMessage bounds the message of an alert, and maxText each member that clients choose.
	maxMessage, maxText = 1_024, 256
	// Pauses between tries.
	minInterval = 100 * time.Millisecond
	maxInterval = 5 * time.Second
)

// ErrUnavailable means that the stream of alerts did not answer. Asking again is safe.
var ErrUnavailable = errors.New("alerts: the stream of alerts did not answer")

// AlertConfig configures the stream of a world's alerts and their acknowledgements. If several
// engines raise an alert within the duplicate window, the stream has it once.
func AlertConfig(world string, replicas int) jetstream.StreamConfig {
	config := sidestream.Config(layout.AlertStream(world), Retention, maxAlertBytes, replicas)
	config.Description = "Operational alerts of the world " + world
	config.Subjects = []string{wire.AlertSubject(world, "*"), layout.AcknowledgedSubject(world, "*")}
	config.MaxMsgsPerSubject = MaxKept // of a code; an alert has one acknowledgement
	config.Duplicates = 2 * time.Minute
	return config
}

// Config configures Alerts. Every member but Identity, Notify, Backlog and the three ids must be set.
type Config struct {
	sidestream.Log
	Replicas int // of the stream of alerts
	// TenantID, ProjectID and EnvironmentID are for alerts that are not about a run event.
	TenantID, ProjectID, EnvironmentID string
	Logger                             *slog.Logger
	Now                                func() time.Time // the clock
	// Notify, unless nil, is called with every alert. It must not block and must be safe for
	// concurrent use.
	Notify func(runevents.Alert)
	// Backlog outlasts the Alerts; nil for none.
	Backlog *Backlog
}

// Alerts raises alerts, and reads those that the stream keeps. It is safe for concurrent use.
type Alerts struct {
	config  Config
	js      jetstream.JetStream
	stream  jetstream.StreamConfig
	stop    context.CancelFunc // ends publishing
	done    chan struct{}      // closed when publishing has ended
	cache   alertCache
	backlog []runevents.Alert // of the backlog, immutable after Start
	missing bool              // the stream, when CheckStream looked last
	created time.Time         // the stream, as CheckStream saw it last; zero if it did not, or the stream was missing

	producerLimit, originLimit *ratelimit.Limit // see allowed

	mu      sync.Mutex
	news    sync.Cond         // the queue has an alert, or closed is set
	queue   []runevents.Alert // to publish, oldest first
	closed  bool
	raised  *recent.Map[string, *eventCount] // by key; mu guards the values
	waiting map[runevents.AlertCode]int      // alerts in queue
	stats   messages.AlertCounts
}

// New returns Alerts. They are published after Start.
func New(js jetstream.JetStream, config Config) *Alerts {
	a := &Alerts{
		config: config, js: js, stream: AlertConfig(config.World, config.Replicas),
		done:          make(chan struct{}),
		producerLimit: ratelimit.New(MaxPerTown, rateWindow),
		originLimit:   ratelimit.New(maxOfAll, rateWindow),
		raised:        recent.NewMap[string, *eventCount](maxRemembered),
		waiting:       map[runevents.AlertCode]int{},
		stats: messages.AlertCounts{
			Alerts: map[runevents.AlertCode]int64{}, AlertsMore: map[runevents.AlertCode]int64{},
		},
	}
	a.news.L = &a.mu
	return a
}

// Raise raises an alert. It never blocks: if too many of its code wait, the alert is counted as
// lost, and only the server's log and Notify get it.
func (a *Alerts) Raise(alert runevents.Alert) {
	a.complete(&alert)
	a.report(&alert)
	if !a.enqueue(&alert) {
		a.countLost(&alert, "too many alerts of this code wait to be published, or the server ends")
	}
}

// CheckStream raises ALERTS_LOST if somebody has removed the stream since the last call, once until it is there again.
// Storing an alert makes the stream anew, so a stream with another time of creation was removed, too. CheckStream must
// not be called at the same time.
func (a *Alerts) CheckStream(ctx context.Context) error {
	stream, err := a.js.Stream(ctx, a.stream.Name)
	isMissing := errors.Is(err, jetstream.ErrStreamNotFound)
	if err != nil && !isMissing {
		return fmt.Errorf("%w: %w", ErrUnavailable, err)
	}
	var created time.Time
	isLost := isMissing && !a.missing
	if !isMissing {
		created = stream.CachedInfo().Created
		isLost = !a.created.IsZero() && !created.Equal(a.created)
	}
	if a.missing, a.created = isMissing, created; isLost {
		a.Raise(AlertsLost.Alert(About{}, "{stream}", a.stream.Name))
	}
	return nil
}

// RaiseOnce raises an alert unless this server has raised it or, after LoadRaised, the stream has it.
func (a *Alerts) RaiseOnce(alert runevents.Alert) {
	if a.remember(&alert) {
		a.Raise(alert)
	}
}

// RaiseStored stores the alert in the stream before it returns. Call it before the change that the alert is about:
// then no crash can lose the alert of a change that was made. It returns ErrUnavailable if the alert may be missing in
// the stream.
func (a *Alerts) RaiseStored(ctx context.Context, alert runevents.Alert) error {
	a.complete(&alert)
	msg, err := a.message(&alert)
	if err == nil {
		err = sidestream.Store(ctx, a.js, a.config.Log, a.stream, msg)
	}
	if err != nil {
		return fmt.Errorf("%w: %s cannot be stored: %w", ErrUnavailable, alert.ID(), err)
	}
	if a.remember(&alert) {
		a.report(&alert)
	}
	return nil
}

// complete fills in missing members of an alert, and shortens its texts.
func (a *Alerts) complete(alert *runevents.Alert) {
	if alert.TenantID == "" && alert.ProjectID == "" && alert.EnvironmentID == "" {
		alert.TenantID, alert.ProjectID = a.config.TenantID, a.config.ProjectID
		alert.EnvironmentID = a.config.EnvironmentID
	}
	for _, text := range []*string{
		&alert.StepID, &alert.TenantID, &alert.ProjectID, &alert.EnvironmentID,
	} {
		*text = phrase.Truncate(*text, maxText)
	}
	alert.Message = phrase.Truncate(alert.Message, maxMessage)
	if alert.Severity == "" {
		alert.Severity = protocol.LookupAlert(alert.Code).Severity
	}
	if alert.At == "" {
		alert.At = runevents.Timestamp(a.config.Now())
	}
}

// report counts an alert, and writes it to the server's log and to Notify.
func (a *Alerts) report(alert *runevents.Alert) {
	a.mu.Lock()
	a.stats.Alerts[alert.Code]++
	a.mu.Unlock()
	a.log(alert)
	if a.config.Notify != nil {
		a.config.Notify(*alert)
	}
}

func (a *Alerts) log(alert *runevents.Alert) {
	level := slog.LevelWarn
	if alert.Severity == runevents.P1 {
		level = slog.LevelError
	}
	attrs := []slog.Attr{slog.String("severity", string(alert.Severity))}
	for _, field := range [...]struct{ name, value string }{
		{"runId", alert.RunID}, {"eventId", alert.EventID}, {"eventType", string(alert.EventType)},
		{"stepId", alert.StepID}, {"handoffId", alert.HandoffID}, {"townId", alert.TownID},
		{"deadLetter", alert.DeadLetter},
		{"priorState", alert.PriorState}, {"attemptedState", alert.AttemptedState},
		{"alert", alert.Message},
	} {
		if field.value != "" {
			attrs = append(attrs, slog.String(field.name, field.value))
		}
	}
	if alert.EventID != "" { // RunEvents v2.0.1, section 5.4
		attrs = append(attrs, slog.Int64("runSeq", alert.RunSeq), slog.String("persistedAt", alert.PersistedAt),
			slog.String("tenantId", alert.TenantID), slog.String("projectId", alert.ProjectID),
			slog.String("environmentId", alert.EnvironmentID), slog.Int64("logicalAttemptId", alert.LogicalAttemptID))
	}
	attrs = append(attrs, alert.Trace.LogAttr())
	a.config.Logger.LogAttrs(context.Background(), level, string(alert.Code), attrs...)
}

// enqueue queues an alert to be published. It returns false if there is no room for it.
func (a *Alerts) enqueue(alert *runevents.Alert) bool {
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.closed || a.waiting[alert.Code] >= MaxQueued || len(a.queue) >= queueSize {
		return false
	}
	a.queue = append(a.queue, *alert)
	a.waiting[alert.Code]++
	a.news.Signal()
	return true
}

// next waits for the next alert in the queue. It returns false once Close was called and the queue is
// empty.
func (a *Alerts) next() (alert runevents.Alert, more bool) {
	a.mu.Lock()
	defer a.mu.Unlock()
	for len(a.queue) == 0 {
		if a.closed {
			return alert, false
		}
		a.queue = nil // frees its memory
		a.news.Wait()
	}
	alert, a.queue = a.queue[0], a.queue[1:]
	return alert, true
}

// countLost counts an alert that is not published.
func (a *Alerts) countLost(alert *runevents.Alert, reason string) {
	a.mu.Lock()
	a.stats.AlertsLost++
	a.mu.Unlock()
	a.config.Logger.Error("an alert is not published", "id", alert.ID(), "reason", reason)
}

// Stats returns the counts of the alerts.
func (a *Alerts) Stats() messages.AlertCounts {
	a.mu.Lock()
	defer a.mu.Unlock()
	stats := a.stats
	stats.Alerts, stats.AlertsMore = maps.Clone(stats.Alerts), maps.Clone(stats.AlertsMore)
	return stats
}

// Start publishes alerts until Close, first the backlog.
func (a *Alerts) Start() {
	a.backlog = a.config.Backlog.drain(a.config.Identity)
	var ctx context.Context
	ctx, a.stop = context.WithCancel(context.Background())
	go func() {
		defer close(a.done)
		for i := range a.backlog {
			a.publish(ctx, &a.backlog[i])
		}
		for alert, more := a.next(); more; alert, more = a.next() {
			a.publish(ctx, &alert)
			a.mu.Lock()
			a.waiting[alert.Code]--
			a.mu.Unlock()
		}
	}()
}

// Close ends publishing. It waits for the alerts in the queue until ctx ends.
// Alerts that are not stored by then go into the backlog. Without one they are lost, as later alerts
// are.
func (a *Alerts) Close(ctx context.Context) {
	defer context.AfterFunc(ctx, a.stop)()
	a.mu.Lock()
	a.closed = true
	a.news.Broadcast()
	a.mu.Unlock()
	<-a.done
}

// publish stores an alert. If it cannot be stored before Close ends, it goes into the backlog; else it
// counts as lost.
func (a *Alerts) publish(ctx context.Context, alert *runevents.Alert) {
	msg, err := a.message(alert)
	if err == nil {
		err = a.retry(ctx, "an alert cannot be published; will try again", func() error {
			return sidestream.Store(ctx, a.js, a.config.Log, a.stream, msg)
		})
	}
	switch {
	case err == nil:
	case ctx.Err() != nil && a.config.Backlog.keep(a.config.Identity, alert):
		a.config.Logger.Warn("an alert is published when the server has started again", "id", alert.ID())
	default:
		a.countLost(alert, err.Error())
	}
}

// retry calls try until it succeeds, NATS refuses, the world is another one, or ctx ends. It logs text with
// each error.
func (a *Alerts) retry(ctx context.Context, text string, try func() error) error {
	pauses := backoff.Backoff{Min: minInterval, Max: maxInterval}
	for {
		err := try()
		if err == nil || ctx.Err() != nil || commitlog.IsRefusal(err) || errors.Is(err, commitlog.ErrOtherLog) {
			return err
		}
		a.config.Logger.Warn(text, "error", err)
		if pauses.Wait(ctx) != nil {
			return err
		}
	}
}

func (a *Alerts) message(alert *runevents.Alert) (*nats.Msg, error) {
	body, err := json.Marshal(alert)
	return &nats.Msg{
		Subject: wire.AlertSubject(a.config.World, string(alert.Code)), Data: body,
		Header: nats.Header{jetstream.MsgIDHeader: {alert.ID()}},
	}, err
}
