package worldengine

import (
	"context"
	"log/slog"
	"maps"
	"math/rand/v2"
	"sync"
	"time"

	"github.com/go-json-experiment/json"
	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"worldengine/runevents"
	"worldengine/worldengine/follow"
)

// Bounds of the alerts.
const (
	maxAlertBytes = 16 << 20
	// alertQueue is how many alerts may wait to be published.
	alertQueue = 256
	// alertDrain bounds how long Close waits for them.
	alertDrain = 2 * time.Second
	// Pauses before an alert is tried again.
	minAlertPause = 100 * time.Millisecond
	maxAlertPause = 5 * time.Second
)

// alertConfig is the stream of a world's alerts. Within its duplicate window it holds an alert once,
// however many engines raise it.
func alertConfig(world string, replicas int) jetstream.StreamConfig {
	config := sideConfig(maxAlertBytes, replicas)
	config.Name = AlertStream(world)
	config.Description = "Operational alerts of the world " + world
	config.Subjects = []string{AlertSubject(world, "*")}
	config.Duplicates = 2 * time.Minute
	return config
}

// alerts tells operators: in the engine's log, in the stream of alerts, and by Config.OnAlert. It is
// safe for concurrent use.
type alerts struct {
	world  string
	stream sideStream
	logger *slog.Logger
	now    func() time.Time
	notify func(runevents.Alert)

	queue   chan runevents.Alert
	closing chan struct{} // no more alerts are waited for
	closed  sync.Once
	stop    context.CancelFunc // gives up what is not published yet
	done    chan struct{}

	mu     sync.Mutex
	counts map[runevents.AlertCode]int64
	lost   int64
}

// newAlerts makes alerts, which are published once it is started.
func newAlerts(js jetstream.JetStream, config Config) *alerts {
	return &alerts{
		world: config.World, logger: config.Logger, now: config.Now, notify: config.OnAlert,
		stream:  sideStream{js: js, config: alertConfig(config.World, config.Replicas)},
		queue:   make(chan runevents.Alert, alertQueue),
		closing: make(chan struct{}), done: make(chan struct{}),
		counts: map[runevents.AlertCode]int64{},
	}
}

// raise tells an alert. It never blocks: where more alerts wait than there is room for, the alert is
// counted as lost, and stands in the engine's log alone.
func (a *alerts) raise(alert runevents.Alert) {
	if alert.Severity == "" {
		alert.Severity = alert.Code.Severity()
	}
	if alert.At == "" {
		alert.At = runevents.Timestamp(a.now())
	}
	a.mu.Lock()
	a.counts[alert.Code]++
	a.mu.Unlock()
	a.log(&alert)
	if a.notify != nil {
		a.notify(alert)
	}
	select {
	case a.queue <- alert:
	default:
		a.lose(&alert, "too many alerts wait to be published")
	}
}

// log writes an alert into the engine's log, with what it has.
func (a *alerts) log(alert *runevents.Alert) {
	level := slog.LevelWarn
	if alert.Severity == runevents.P1 {
		level = slog.LevelError
	}
	attrs := []slog.Attr{slog.String("severity", string(alert.Severity))}
	for _, field := range [...]struct{ name, value string }{
		{"runId", alert.RunID}, {"eventId", alert.EventID}, {"eventType", string(alert.EventType)},
		{"stepId", alert.StepID}, {"handoffId", alert.HandoffID}, {"deadLetter", alert.DeadLetter},
		{"priorState", alert.PriorState}, {"attemptedState", alert.AttemptedState}, {"alert", alert.Message},
	} {
		if field.value != "" {
			attrs = append(attrs, slog.String(field.name, field.value))
		}
	}
	a.logger.LogAttrs(context.Background(), level, string(alert.Code), attrs...)
}

// lose counts an alert that does not come into the stream.
func (a *alerts) lose(alert *runevents.Alert, why string) {
	a.mu.Lock()
	a.lost++
	a.mu.Unlock()
	a.logger.Error("an alert is not published", "id", alert.ID(), "why", why)
}

// stats returns how many alerts were raised, by code, and how many of them were lost.
func (a *alerts) stats() (map[runevents.AlertCode]int64, int64) {
	a.mu.Lock()
	defer a.mu.Unlock()
	return maps.Clone(a.counts), a.lost
}

// start publishes alerts until close.
func (a *alerts) start() {
	var ctx context.Context
	ctx, a.stop = context.WithCancel(context.Background())
	go func() {
		defer close(a.done)
		for {
			select {
			case alert := <-a.queue:
				a.publish(ctx, &alert)
			case <-a.closing:
				a.drain(ctx)
				return
			}
		}
	}()
}

// drain publishes what waits.
func (a *alerts) drain(ctx context.Context) {
	for {
		select {
		case alert := <-a.queue:
			a.publish(ctx, &alert)
		default:
			return
		}
	}
}

// close publishes what waits, as long as ctx and alertDrain last, and ends what start began.
func (a *alerts) close(ctx context.Context) {
	ctx, cancel := context.WithTimeout(ctx, alertDrain)
	defer cancel()
	a.closed.Do(func() { close(a.closing) })
	select {
	case <-a.done:
	case <-ctx.Done():
	}
	a.stop()
	<-a.done
}

// publish stores an alert, trying for as long as ctx lasts.
func (a *alerts) publish(ctx context.Context, alert *runevents.Alert) {
	msg, err := a.message(alert)
	for pause := minAlertPause; err == nil; pause = min(2*pause, maxAlertPause) {
		if err = a.stream.store(ctx, msg); err == nil {
			return
		}
		if ctx.Err() != nil || follow.IsRefusal(err) {
			break
		}
		a.logger.Warn("an alert cannot be published; will try again", "id", alert.ID(), "error", err)
		select {
		case <-time.After(pause/2 + rand.N(pause)):
			err = nil
		case <-ctx.Done():
		}
	}
	a.lose(alert, err.Error())
}

func (a *alerts) message(alert *runevents.Alert) (*nats.Msg, error) {
	body, err := json.Marshal(alert)
	return &nats.Msg{
		Subject: AlertSubject(a.world, string(alert.Code)), Data: body,
		Header: nats.Header{jetstream.MsgIDHeader: {alert.ID()}},
	}, err
}
