package alerts

import (
	"context"
	"fmt"
	"log/slog"
	"maps"
	"sync"
	"time"

	"github.com/go-json-experiment/json"
	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"worldengine/runevents"
	"worldengine/worldengine/backoff"
	"worldengine/worldengine/commitlog"
	"worldengine/worldengine/messages"
	"worldengine/worldengine/wire"
)

// Bounds of the alerts.
const (
	maxAlertBytes = 32 << 20
	// Kept is how many alerts of each code the stream keeps, so that many of one code push out none
	// of another. It is more than a projector can raise again about the events that it looks back
	// at.
	Kept = 1_000
	// Waiting is how many alerts of each code may wait to be published, and maxWaiting how many
	// altogether, which is more than all codes may have.
	Waiting    = 64
	maxWaiting = 64 * Waiting
	// maxMessage and maxText bound the message of an alert and its members that clients choose.
	maxMessage, maxText = 1_024, 256
	// alertDrain bounds how long Close waits for them.
	alertDrain = 2 * time.Second
	// Pauses before an alert is tried again.
	minAlertPause = 100 * time.Millisecond
	maxAlertPause = 5 * time.Second
)

// AlertConfig is the stream of a world's alerts and of their acknowledgements. Within its duplicate
// window it holds an alert once, however many engines raise it.
func AlertConfig(world string, replicas int) jetstream.StreamConfig {
	config := sideConfig(maxAlertBytes, replicas)
	config.Name = wire.AlertStream(world)
	config.Description = "Operational alerts of the world " + world
	config.Subjects = []string{wire.AlertSubject(world, "*"), wire.AcknowledgedSubject(world, "*")}
	config.MaxMsgsPerSubject = Kept // of a code: of an acknowledgement there is one
	config.Duplicates = 2 * time.Minute
	return config
}

// Alerts raises alerts: in the log of the server, in the stream of alerts, and through Notify. It
// is safe for concurrent use.
type Alerts struct {
	world  string
	stream SideStream
	logger *slog.Logger
	now    func() time.Time
	notify func(runevents.Alert)

	queue   chan runevents.Alert
	closing chan struct{} // no more alerts are waited for
	closed  sync.Once
	stop    context.CancelFunc // gives up what is not published yet
	done    chan struct{}

	raised *runevents.AlertFilter // what RaiseOnce and Recall remember
	found  found
	book   book

	mu      sync.Mutex
	waiting map[runevents.AlertCode]int // in the queue
	counts  map[runevents.AlertCode]int64
	lost    int64
}

// Config says where alerts go. Every member but Notify must be set.
type Config struct {
	World    string
	Replicas int // of the stream of alerts
	Logger   *slog.Logger
	Now      func() time.Time // the time of an alert that has none
	// Notify, where set, is called with every alert. It must not block and must be safe for
	// concurrent use.
	Notify func(runevents.Alert)
}

// New makes alerts, which are published once it is started.
func New(js jetstream.JetStream, config Config) *Alerts {
	return &Alerts{
		world: config.World, logger: config.Logger, now: config.Now, notify: config.Notify,
		stream:  SideStream{JetStream: js, Config: AlertConfig(config.World, config.Replicas)},
		queue:   make(chan runevents.Alert, maxWaiting),
		closing: make(chan struct{}), done: make(chan struct{}),
		raised: runevents.NewAlertFilter(0), found: newFound(),
		waiting: map[runevents.AlertCode]int{}, counts: map[runevents.AlertCode]int64{},
	}
}

// RaiseOnce raises an alert unless it was raised before: however often something is found, it is
// told once.
func (a *Alerts) RaiseOnce(alert runevents.Alert) {
	if a.raised.First(&alert) {
		a.Raise(alert)
	}
}

// RaiseStored is RaiseOnce for an alert that has to be in the stream before what it reports is
// done, so that no crash keeps it from operators. It returns ErrUnavailable where it may not
// be there.
func (a *Alerts) RaiseStored(ctx context.Context, alert runevents.Alert) error {
	a.complete(&alert)
	msg, err := a.message(&alert)
	if err == nil {
		err = a.stream.Store(ctx, msg)
	}
	if err != nil {
		return fmt.Errorf("%w: %s cannot be stored: %w", ErrUnavailable, alert.ID(), err)
	}
	if a.raised.First(&alert) {
		a.report(&alert)
	}
	return nil
}

// Raise raises an alert. It never blocks: if as many of its code wait as may, the alert is counted
// as lost, and stands in the engine's log alone.
func (a *Alerts) Raise(alert runevents.Alert) {
	a.complete(&alert)
	a.report(&alert)
	if !a.enqueue(&alert) {
		a.lose(&alert, "too many alerts of this code wait to be published")
	}
}

// enqueue leaves an alert to be published, and reports whether there is room for it.
func (a *Alerts) enqueue(alert *runevents.Alert) bool {
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.waiting[alert.Code] >= Waiting {
		return false
	}
	select {
	case a.queue <- *alert:
		a.waiting[alert.Code]++
		return true
	default:
		return false
	}
}

// complete gives an alert its severity and its time, if it has none, and shortens its texts.
func (a *Alerts) complete(alert *runevents.Alert) {
	for _, text := range []*string{
		&alert.StepID, &alert.TenantID, &alert.ProjectID, &alert.EnvironmentID,
	} {
		*text = shortened(*text, maxText)
	}
	alert.Message = shortened(alert.Message, maxMessage)
	if alert.Severity == "" {
		alert.Severity = alert.Code.Severity()
	}
	if alert.At == "" {
		alert.At = runevents.Timestamp(a.now())
	}
}

// report counts an alert, and passes it to the engine's log and Notify.
func (a *Alerts) report(alert *runevents.Alert) {
	a.mu.Lock()
	a.counts[alert.Code]++
	a.mu.Unlock()
	a.log(alert)
	if a.notify != nil {
		a.notify(*alert)
	}
}

// log writes an alert into the engine's log, with what it has.
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
	attrs = append(attrs, alert.Trace.LogAttr())
	a.logger.LogAttrs(context.Background(), level, string(alert.Code), attrs...)
}

// lose counts an alert that does not come into the stream.
func (a *Alerts) lose(alert *runevents.Alert, why string) {
	a.mu.Lock()
	a.lost++
	a.mu.Unlock()
	a.logger.Error("an alert is not published", "id", alert.ID(), "why", why)
}

// Stats returns how many alerts there were.
func (a *Alerts) Stats() messages.AlertCounts {
	a.mu.Lock()
	defer a.mu.Unlock()
	return messages.AlertCounts{
		Alerts: maps.Clone(a.counts), AlertsLost: a.lost,
		AlertsMore: a.found.counts(),
	}
}

// Start publishes alerts until Close.
func (a *Alerts) Start() {
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
func (a *Alerts) drain(ctx context.Context) {
	for {
		select {
		case alert := <-a.queue:
			a.publish(ctx, &alert)
		default:
			return
		}
	}
}

// Close publishes what waits, as long as ctx and alertDrain last, and ends what Start began.
func (a *Alerts) Close(ctx context.Context) {
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
func (a *Alerts) publish(ctx context.Context, alert *runevents.Alert) {
	defer func() {
		a.mu.Lock()
		defer a.mu.Unlock()
		a.waiting[alert.Code]--
	}()
	msg, err := a.message(alert)
	pauses := backoff.Backoff{Min: minAlertPause, Max: maxAlertPause}
	for err == nil {
		if err = a.stream.Store(ctx, msg); err == nil {
			return
		}
		if ctx.Err() != nil || commitlog.IsRefusal(err) {
			break
		}
		a.logger.Warn("an alert cannot be published; will try again", "id",
			alert.ID(), "error", err)
		if pauses.Wait(ctx) == nil {
			err = nil
		}
	}
	a.lose(alert, err.Error())
}

func (a *Alerts) message(alert *runevents.Alert) (*nats.Msg, error) {
	body, err := json.Marshal(alert)
	return &nats.Msg{
		Subject: wire.AlertSubject(a.world, string(alert.Code)), Data: body,
		Header: nats.Header{jetstream.MsgIDHeader: {alert.ID()}},
	}, err
}
