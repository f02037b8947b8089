package runs

import (
	"bytes"
	"context"
	"log/slog"
	"os"
	"path/filepath"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/nats-io/nats.go"
	"github.com/stretchr/testify/require"

	"worldengine/runevents"
	"worldengine/runevents/recent"
	"worldengine/worldengine/commitlog"
	"worldengine/worldengine/commitlog/logtest"
	"worldengine/worldengine/index"
	"worldengine/worldengine/wire"
)

// event is a write of an event of a run, or of a step of it.
func event(runID string, kind runevents.EventType, step string) runevents.Write {
	w := logtest.Told(1)
	w.EventID, w.RunID, w.EventType, w.StepID = uuid.NewString(), runID, kind, step
	return keyed(w)
}

// projecting is a projector that runs, whose alerts are kept.
type projecting struct {
	*Projector
	t    *testing.T
	stop func()

	mu    sync.Mutex
	found []string // town, code and event of each alert
}

// project starts a projector of the runs of a store, after change has changed it.
func project(t *testing.T, s *Store, file string, change ...func(*projecting)) *projecting {
	t.Helper()
	p := &projecting{t: t, Projector: s.Projector(file, time.Now)}
	s.config.Alert = func(town string, a runevents.Alert) {
		p.mu.Lock()
		defer p.mu.Unlock()
		p.found = append(p.found, town+" "+string(a.Code)+" "+a.EventID)
	}
	for _, c := range change {
		c(p)
	}
	ctx, cancel := context.WithCancel(context.Background())
	var done sync.WaitGroup
	done.Go(func() { p.Run(ctx) })
	p.stop = func() { cancel(); done.Wait() }
	t.Cleanup(p.stop)
	return p
}

// append appends to a run of "Town 1", and waits until that is projected.
func (p *projecting) append(writes ...runevents.Write) {
	p.t.Helper()
	tell(p.t, p.store, "Town 1", writes...)
	p.reachEnd()
}

// reachEnd waits until the log is projected.
func (p *projecting) reachEnd() {
	p.t.Helper()
	end, err := p.store.log.End(p.t.Context())
	require.NoError(p.t, err)
	p.Kick()
	require.Eventually(p.t, func() bool {
		return p.Position() >= end && p.Behind() == 0 && p.Lag() == 0
	}, 30*time.Second, 2*time.Millisecond, "the end of the log")
}

// requireAlerts checks the alerts.
func (p *projecting) requireAlerts(want ...string) {
	p.t.Helper()
	p.mu.Lock()
	defer p.mu.Unlock()
	require.Equal(p.t, want, p.found)
}

// invalid returns events of a run in which a step ends that has not begun, and their alerts.
func invalid(runID string) (writes []runevents.Write, alerts []string) {
	ends := event(runID, runevents.StepCompleted, "a")
	return []runevents.Write{event(runID, runevents.RunStarted, ""), ends}, []string{
		"Town%201 INVALID_TRANSITION " + ends.EventID,
		"Town%201 PROJECTOR_CAUSAL_VIOLATION " + ends.EventID,
	}
}

// An invalid event raises one alert, with its town, however the run goes on.
func TestProjector_InvalidEvent(t *testing.T) {
	t.Parallel()
	s := open(t, logtest.New(t))
	p := project(t, s, "")
	writes, alerts := invalid("run")
	p.append(writes...)
	p.requireAlerts(alerts...)
	p.append(event("another", runevents.RunStarted, ""))
	p.append(event("run", runevents.RunCompleted, ""))
	p.requireAlerts(alerts...)
}

// A run goes on, also if the projector has forgotten it: only the step that begins again raises an
// alert.
func TestProjector_RunGoesOn(t *testing.T) {
	t.Parallel()
	for name, held := range map[string]int{"remembered": 10, "forgotten": 1} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			p := project(t, open(t, logtest.New(t)), "", func(p *projecting) {
				p.held = recent.NewMap[string, *runevents.Snapshot](held)
			})
			p.append(event("run", runevents.RunStarted, ""), event("run", runevents.StepStarted, "a"))
			p.append(event("another", runevents.RunStarted, ""))
			p.append(event("run", runevents.StepCompleted, "a"))
			p.append(event("third", runevents.RunStarted, ""))
			p.requireAlerts()
			again := event("run", runevents.StepSkipped, "a")
			p.append(again)
			p.requireAlerts("Town%201 INVALID_TRANSITION " + again.EventID)
		})
	}
}

// A run that skips a runSeq is read again from its beginning, with an alert, and goes on behind the
// gap, which is natural if the log has it too.
func TestProjector_Gap(t *testing.T) {
	t.Parallel()
	p := project(t, open(t, logtest.New(t)), "")
	p.append(event("run", runevents.RunStarted, ""), event("run", runevents.StepStarted, "a"))
	e := event("run", runevents.StepCompleted, "a")
	log := p.store.log
	msg, err := log.RunMessage(&commitlog.Record{
		Kind: commitlog.KindEvents, TownID: "Town 1", Run: &runevents.Run{
			Identity: runevents.Identity{RunID: e.RunID, TenantID: e.TenantID, ProjectID: e.ProjectID,
				EnvironmentID: e.EnvironmentID, PlanID: e.PlanID, PlanVersion: e.PlanVersion},
			FirstSeq: 5, Events: []runevents.Event{{EventID: e.EventID, EventType: e.EventType,
				StepID: e.StepID, LogicalAttemptID: 1, EmittedAt: e.EmittedAt}},
		}})
	require.NoError(t, err)
	_, err = log.Commit(t.Context(), msg, 1)
	require.NoError(t, err)
	_, err = p.store.index.Sync(t.Context())
	require.NoError(t, err)
	p.reachEnd()
	again := event("run", runevents.StepSkipped, "a")
	p.append(again)
	p.requireAlerts("Town%201 PROJECTOR_NON_CONTIGUOUS_FETCH_DETECTED "+e.EventID,
		"Town%201 INVALID_TRANSITION "+again.EventID)
}

// A run without its beginning, or a damaged one, is skipped without an alert. One that was projected
// before goes on.
func TestProjector_ExpiredAndDamagedRuns(t *testing.T) {
	t.Parallel()
	l := logtest.New(t)
	s := open(t, l)
	tell(t, s, "Town 1", event("expired", runevents.RunStarted, ""))
	keep(t, l, 1)
	tell(t, s, "Town 1", event("expired", runevents.StepCompleted, "a"))
	p := project(t, s, "")
	p.append(event("seen", runevents.RunStarted, ""), event("seen", runevents.StepStarted, "a"))
	_, err := logtest.JetStream(l).PublishMsg(t.Context(), &nats.Msg{
		Subject: wire.RunSubject("main", "damaged"), Data: []byte("{"), Header: nats.Header{
			wire.KindHeader: {"events"}, wire.RunIDHeader: {"damaged"}, wire.RunSeqsHeader: {"1-1"},
		}})
	require.NoError(t, err)
	repeated, err := s.log.Store.At(t.Context(), s.index.Appended(2, 1)[0].Seq)
	require.NoError(t, err)
	_, err = logtest.JetStream(l).PublishMsg(t.Context(), &nats.Msg{
		Subject: repeated.Subject, Data: repeated.Data, Header: nats.Header{ // its events are 1 and 2
			wire.KindHeader: {"events"}, wire.RunIDHeader: {"seen"}, wire.RunSeqsHeader: {"3-3"},
		}})
	require.NoError(t, err)
	_, err = s.index.Sync(t.Context())
	require.NoError(t, err)
	p.reachEnd()
	again := event("seen", runevents.StepStarted, "a")
	again.LogicalAttemptID = 2
	p.append(event("seen", runevents.StepCompleted, "a"), keyed(again))
	p.append(event("expired", runevents.StepStarted, "b"))
	p.requireAlerts()
	writes, alerts := invalid("next")
	p.append(writes...)
	p.requireAlerts(alerts...)
}

// Events that come late cause a lag, which grows while they wait, and an alert about the last event
// that was projected.
func TestProjector_Lag(t *testing.T) {
	t.Parallel()
	s := open(t, logtest.New(t))
	var late atomic.Int64
	entered, hold := make(chan runevents.Alert, 100), make(chan struct{})
	p := project(t, s, "", func(p *projecting) {
		p.now = func() time.Time { return time.Now().Add(time.Duration(late.Load())) }
		s.config.Alert = func(_ string, a runevents.Alert) { entered <- a; <-hold }
	})
	release := sync.OnceFunc(func() { close(hold) })
	t.Cleanup(release) // else the projector would never end
	first := event("first", runevents.RunStarted, "")
	p.append(first)
	before := p.Position()
	late.Store(int64(time.Minute))
	tell(t, s, "Town 1", event("second", runevents.RunStarted, ""))
	p.Kick()
	a := <-entered
	require.Equal(t, runevents.ProjectorLagHigh, a.Code)
	require.Equal(t, first.EventID, a.EventID)
	require.Equal(t, uint64(1), p.Behind())
	require.Equal(t, before, p.Position())
	require.GreaterOrEqual(t, p.Lag(), time.Minute)
	late.Store(int64(time.Hour))
	require.GreaterOrEqual(t, p.Lag(), time.Hour)
	late.Store(0)
	release()
	p.reachEnd()
}

// slowSource shows its log once it is opened.
type slowSource struct {
	index.Source
	opened chan struct{}
}

func (s *slowSource) EachAfter(
	ctx context.Context, seq uint64, visit func(uint64, string, nats.Header) error,
) error {
	select {
	case <-s.opened:
		return s.Source.EachAfter(ctx, seq, visit)
	case <-ctx.Done():
		return ctx.Err()
	}
}

// A projector starts at its predecessor's position, even over an index that is being built; without a
// valid file a little before the log's end.
func TestProjector_Position(t *testing.T) {
	t.Parallel()
	l := logtest.New(t)
	s := open(t, l)
	file := filepath.Join(t.TempDir(), "projected")
	writes, known := invalid("known")
	tell(t, s, "Town 1", writes...)
	p := project(t, s, file)
	p.reachEnd()
	p.requireAlerts(known...)
	p.stop()
	writes, fresh := invalid("fresh")
	tell(t, s, "Town 1", writes...)

	source := &slowSource{index.LogSource(l), make(chan struct{})}
	x, err := index.Open(t.Context(), index.Config{World: "main", Source: source})
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, x.Close()) })
	next := New(l, x, s.config)
	p = project(t, next, file)
	close(source.opened)
	p.reachEnd()
	p.requireAlerts(fresh...)
	p.stop()
	for _, content := range []string{"many", ""} {
		require.NoError(t, os.Remove(file))
		if content != "" {
			require.NoError(t, os.WriteFile(file, []byte(content), 0o600))
		}
		var log bytes.Buffer
		s.config.Logger = slog.New(slog.NewTextHandler(&log, nil))
		p = project(t, s, file)
		p.reachEnd()
		p.requireAlerts(append(known, fresh...)...)
		p.stop()
		require.Equal(t, content != "", bytes.Contains(log.Bytes(), []byte("cannot be read")))
	}
}
