package projector_test

import (
	"context"
	"errors"
	"log/slog"
	"strconv"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
	"github.com/stretchr/testify/require"

	"worldengine/runevents"
	"worldengine/worldengine/internal/core/machine"
	"worldengine/worldengine/internal/core/runlog"
	"worldengine/worldengine/internal/engine/appends/appendstest"
	"worldengine/worldengine/internal/engine/projector"
	"worldengine/worldengine/internal/kit/layout"
	"worldengine/worldengine/internal/store/commitlog"
	"worldengine/worldengine/internal/store/commitlog/logtest"
	"worldengine/worldengine/internal/store/index"
	"worldengine/worldengine/internal/store/records"
	"worldengine/worldengine/internal/store/runs"
	"worldengine/worldengine/internal/testkit/natstest"
	"worldengine/worldengine/wire"
)

func TestMain(m *testing.M) { natstest.Main(m, 4) }

// event is a write of an event of a run, or of a step of it.
func event(runID string, kind runevents.EventType, step string) runevents.Write {
	w := logtest.NewWrite(1)
	w.EventID, w.RunID, w.EventType, w.StepID = uuid.NewString(), runID, kind, step
	return logtest.Keyed(w)
}

// projecting is a world that projects, and keeps its alerts.
type projecting struct {
	*appendstest.World
	t *testing.T

	mu    sync.Mutex
	found []string // town, code and event of each alert
	spent bool     // no alert is raised now
}

// project returns the world of a log that projects, as Run does at first.
func project(t *testing.T, l *records.Log, change ...func(*projector.Config)) *projecting {
	t.Helper()
	p := openProjecting(t, l, change...)
	p.Projector.Enable()
	p.reachEnd()
	return p
}

func openProjecting(t *testing.T, l *records.Log, change ...func(*projector.Config)) *projecting {
	t.Helper()
	p := &projecting{t: t}
	p.World = appendstest.Open(t, l, append(change, func(c *projector.Config) { c.Alert = p.alert })...)
	return p
}

func (p *projecting) alert(town string, a runevents.Alert) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.spent {
		return false
	}
	p.found = append(p.found, town+" "+string(a.Code)+" "+a.EventID)
	return true
}

// reachEnd projects all rows.
func (p *projecting) reachEnd() {
	p.t.Helper()
	_, err := p.Index.CatchUp(p.t.Context())
	require.NoError(p.t, err)
	p.Projector.Look(p.t.Context())
	require.Equal(p.t, p.Index.Position(), p.Projector.Position())
	p.requireWaiting(0, 0)
}

// requireWaiting checks the lag of projections, which may be longer, and the number of rows.
func (p *projecting) requireWaiting(lag time.Duration, rows uint64) {
	p.t.Helper()
	got, behind := p.Projector.Lag()
	require.Equal(p.t, rows, behind)
	require.GreaterOrEqual(p.t, got, lag)
	require.Equal(p.t, rows > 0, got > 0)
}

// append appends to a run of "Town 1", which is then projected.
func (p *projecting) append(writes ...runevents.Write) {
	p.t.Helper()
	p.MustAppend(p.t, "Town 1", writes...)
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

// An invalid event raises its alerts, with its town, when it is appended.
func TestProjector_InvalidEvent(t *testing.T) {
	t.Parallel()
	p := project(t, logtest.New(t))
	writes, alerts := invalid("run")
	p.append(writes...)
	p.requireAlerts(alerts...)
	p.append(event("another", runevents.RunStarted, ""))
	p.append(event("run", runevents.RunCompleted, ""))
	p.reachEnd()
	p.requireAlerts(alerts...)
}

// A run continues, also if the cache has lost it: only the step that begins again raises an alert.
func TestProjector_RunGoesOn(t *testing.T) {
	t.Parallel()
	for name, forget := range map[string]bool{"remembered": false, "forgotten": true} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			p := project(t, logtest.New(t))
			p.append(event("run", runevents.RunStarted, ""), event("run", runevents.StepStarted, "a"))
			if forget {
				p.Forget()
			}
			p.append(event("run", runevents.StepCompleted, "a"))
			p.requireAlerts()
			again := event("run", runevents.StepSkipped, "a")
			p.append(again)
			p.requireAlerts("Town%201 INVALID_TRANSITION " + again.EventID)
		})
	}
}

// A run that skips a runSeq is read again from its beginning, with an alert, and continues behind the
// gap, which is natural if the log has it too.
func TestProjector_Gap(t *testing.T) {
	t.Parallel()
	p := project(t, logtest.New(t))
	engine := logtest.NewProducer(appendstest.EngineRun)
	require.NoError(t, engine.Emit(runlog.Emission{Type: runevents.RunStarted}))
	p.Extend(t, engine.Run(), 0, false)
	p.MustAppend(t, "t", event("run", runevents.StepStarted, "a"))
	e := event("run", runevents.StepCompleted, "a")
	msg, err := p.Log.RunMessage(&machine.Record{
		Kind: machine.KindAppended, TownID: "t", Run: &runlog.Run{
			Identity: runevents.Identity{RunID: e.RunID, TenantID: e.TenantID, ProjectID: e.ProjectID,
				EnvironmentID: e.EnvironmentID, PlanID: e.PlanID, PlanVersion: e.PlanVersion},
			FirstSeq: 5, Events: []runlog.Event{{EventID: e.EventID, EventType: e.EventType,
				StepID: e.StepID, LogicalAttemptID: 1, EmittedAt: e.EmittedAt}},
		}})
	require.NoError(t, err)
	_, err = p.Log.Commit(t.Context(), msg, 2)
	require.NoError(t, err)
	again := event("run", runevents.StepSkipped, "a")
	p.MustAppend(t, "t", again)
	answers, err := p.Append(t.Context(), "t", []runevents.Write{again})
	require.NoError(t, err)
	require.Equal(t, int64(6), answers[0].RunSeq)
	p.requireAlerts("t PROJECTOR_NON_CONTIGUOUS_FETCH_DETECTED "+e.EventID,
		"t INVALID_TRANSITION "+again.EventID)
}

// A run without its beginning, a damaged one, or one with a record of another run is skipped without
// an alert.
func TestProjector_ExpiredAndDamagedRuns(t *testing.T) {
	t.Parallel()
	l := logtest.New(t)
	logtest.AppendEvents(t, l, "Town 1", event("expired", runevents.RunStarted, ""))
	logtest.AppendEvents(t, l, "Town 1", event("expired", runevents.StepCompleted, "a"))
	logtest.Cut(t, l, 1)
	publish := func(runID, seqs string, data []byte) {
		_, err := logtest.JetStream(l).PublishMsg(t.Context(), &nats.Msg{
			Subject: layout.RunSubject("main", runID), Data: data, Header: nats.Header{
				layout.KindHeader: {"events"}, wire.RunIDHeader: {runID}, layout.RunSeqsHeader: {seqs},
			}})
		require.NoError(t, err)
	}
	publish("damaged", "1-1", []byte("{"))
	last, err := l.Store.Last(t.Context(), layout.RunSubject("main", "expired"))
	require.NoError(t, err)
	publish("foreign", "2-2", last.Data)
	p := project(t, l)
	p.append(event("expired", runevents.StepStarted, "b"))
	p.requireAlerts()
	writes, alerts := invalid("next")
	p.append(writes...)
	p.requireAlerts(alerts...)
}

// A run without its beginning raises no alerts and is unknown, also if the index was built after the
// beginning expired. Its later events can be read.
func TestProjector_ExpiredBeforeTheIndex(t *testing.T) {
	t.Parallel()
	l := logtest.New(t)
	logtest.AppendEvents(t, l, "Town 1", event("run", runevents.RunStarted, ""))
	logtest.AppendEvents(t, l, "Town 1", event("run", runevents.StepCompleted, "a"))
	logtest.Cut(t, l, 1)
	p := project(t, l)
	_, err := p.Runs.Get(t.Context(), "run")
	require.ErrorIs(t, err, runs.ErrUnknownRun)
	_, err = p.Runs.Events(t.Context(), "run", 0, 0, 10)
	require.ErrorIs(t, err, runs.ErrUnknownRun)
	page, err := p.Runs.Events(t.Context(), "run", 1, 0, 10)
	require.NoError(t, err)
	require.Len(t, page.Events, 1)
	p.append(event("run", runevents.StepStarted, "b"))
	p.requireAlerts()
}

// countingStore counts the messages that are read one by one.
type countingStore struct {
	commitlog.Store
	read atomic.Int64
}

func (s *countingStore) At(ctx context.Context, seq uint64) (*jetstream.RawStreamMsg, error) {
	s.read.Add(1)
	return s.Store.At(ctx, seq)
}

// A look reads each run once, also a damaged one.
func TestProjector_LongRuns(t *testing.T) {
	t.Parallel()
	l := logtest.New(t)
	const rows = 20
	for i := range rows {
		logtest.AppendEvents(t, l, "Town 1", event([]string{"a", "b"}[i%2], runevents.StepStarted, strconv.Itoa(i)))
	}
	damaged, err := l.Store.At(t.Context(), rows/2)
	require.NoError(t, err)
	damaged.Data = nil
	counted := &countingStore{Store: &logtest.ChangedStore{Store: l.Store, Seq: rows / 2, Msg: damaged}}
	l.Store = counted
	project(t, l)
	require.LessOrEqual(t, counted.read.Load(), int64(2*rows))
}

// deafStore fails to read a log.
type deafStore struct {
	commitlog.Store
	err error
}

func (s *deafStore) At(context.Context, uint64) (*jetstream.RawStreamMsg, error) {
	return nil, s.err
}

// Events that cannot be read cause a lag, which grows while they wait, and one alert about that.
func TestProjector_Lag(t *testing.T) {
	t.Parallel()
	l := logtest.New(t)
	var late atomic.Int64
	p := project(t, l, func(c *projector.Config) {
		c.Now = func() time.Time { return time.Now().Add(time.Duration(late.Load())) }
	})
	logtest.AppendEvents(t, l, "Town 1", event("elsewhere", runevents.RunStarted, ""))
	_, err := p.Index.CatchUp(t.Context())
	require.NoError(t, err)
	whole := l.Store
	l.Store = &deafStore{whole, errors.New("no answer")}
	p.Projector.Look(t.Context())
	p.requireWaiting(0, 1)
	p.requireAlerts()
	late.Store(int64(time.Minute))
	for range 2 {
		p.Projector.Look(t.Context())
		p.requireAlerts(" PROJECTOR_LAG_HIGH ")
	}
	late.Store(int64(time.Hour))
	p.requireWaiting(time.Hour, 1)
	late.Store(0)
	l.Store = whole
	p.reachEnd()
}

// slowSource shows its log once it is opened.
type slowSource struct {
	index.Source
	opened chan struct{}
}

func (s *slowSource) EachAfter(
	ctx context.Context, seq uint64, visit func(uint64, string, nats.Header) error,
) (uint64, error) {
	select {
	case <-s.opened:
		return s.Source.EachAfter(ctx, seq, visit)
	case <-ctx.Done():
		return 0, ctx.Err()
	}
}

// A server projects the newest events that were appended before its start, also by others, and over
// an index that is being built.
func TestProjector_OfEarlierServers(t *testing.T) {
	t.Parallel()
	l := logtest.New(t)
	writes, want := invalid("run")
	logtest.AppendEvents(t, l, "Town 1", writes...)
	logtest.AppendEvents(t, l, "Town 1", event("run", runevents.RunCompleted, ""))
	source := &slowSource{index.LogSource(l.Log), make(chan struct{})}
	x, err := index.Open(t.Context(), index.Config{World: "main", Source: source})
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, x.Close()) })
	alerts := make(chan string, 9)
	next := projector.New(projector.Config{
		Log: l, Index: x, Runs: runs.New(l, x, func(runevents.Alert) {}), Now: time.Now,
		Logger: slog.New(slog.DiscardHandler),
		Alert: func(town string, a runevents.Alert) bool {
			alerts <- town + " " + string(a.Code) + " " + a.EventID
			return true
		},
	})
	ctx, cancel := context.WithCancel(t.Context())
	var done sync.WaitGroup
	done.Go(func() { next.Run(ctx) })
	close(source.opened)
	for _, alert := range want {
		require.Equal(t, alert, <-alerts)
	}
	cancel()
	done.Wait()
}

// An INCONSISTENT run whose alert the rate postpones gets it later, once; also from the next server, and
// if the run is older than all that this server looks at.
func TestProjector_AlertLater(t *testing.T) {
	t.Parallel()
	for name, change := range map[string]func(p *projecting) *projecting{
		"same server": func(p *projecting) *projecting { return p },
		"next server": func(p *projecting) *projecting { return project(p.t, p.Log) },
		"older than the lookback": func(p *projecting) *projecting {
			next := openProjecting(p.t, p.Log)
			next.Projector.SkipTo(p.Index.Position())
			next.Projector.Enable()
			next.reachEnd()
			return next
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			p := project(t, logtest.New(t))
			p.spent = true
			var want []string
			for _, runID := range []string{"a", "b"} {
				writes, alerts := invalid(runID)
				p.append(writes...)
				p.append(event(runID, runevents.StepSkipped, "another"), event(runID, runevents.StepSkipped, "another"))
				want = append(want, alerts...)
			}
			p.append(event("valid", runevents.RunStarted, ""))
			p.Projector.Look(t.Context())
			p.requireAlerts()
			p.spent = false
			p = change(p)
			p.Projector.Look(t.Context())
			require.Subset(t, p.found, want)
			raised := len(p.found)
			p.Projector.Look(t.Context())
			require.Len(t, p.found, raised, "once")
			require.NotContains(t, p.found, "valid")
		})
	}
}
