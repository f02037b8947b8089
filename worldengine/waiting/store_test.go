package waiting

import (
	"context"
	"log/slog"
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
	"github.com/stretchr/testify/require"

	"worldengine/handoff"
	"worldengine/runevents"
	"worldengine/worldengine/alerts"
	"worldengine/worldengine/commitlog"
	"worldengine/worldengine/commitlog/logtest"
	"worldengine/worldengine/machine"
	"worldengine/worldengine/natstest"
	"worldengine/worldengine/runs"
	"worldengine/worldengine/stepper"
	"worldengine/worldengine/town"
	"worldengine/worldengine/wire"
)

func TestMain(m *testing.M) { natstest.Main(m, 4) }

// fixture is a Store over a log with the town "t".
type fixture struct {
	*Store
	t    *testing.T
	runs *ends
	// alerted are the runs that operators were alerted about.
	alerted []string
}

// ends are runs of which none has ended, unless a test says so.
type ends struct {
	runs.Reader
	status runevents.RunStatus
	err    error
}

func (e *ends) Get(context.Context, string) (runevents.Snapshot, error) {
	return runevents.Snapshot{Status: e.status}, e.err
}

func newFixture(t *testing.T) *fixture {
	log := logtest.New(t)
	_, err := log.Commit(t.Context(), logtest.Put(t, 1), 0)
	require.NoError(t, err)
	f := &fixture{t: t, runs: new(ends)}
	logger := slog.New(slog.DiscardHandler)
	f.Store = New(&stepper.Stepper{Log: log, Now: time.Now, NewID: uuid.NewString}, Config{
		History: 2, Ends: &runs.Ends{Log: log, Runs: f.runs}, Logger: logger,
		Alerts: alerts.New(nil, alerts.Config{World: "main", Logger: logger, Now: time.Now,
			Notify: func(a runevents.Alert) { f.alerted = append(f.alerted, a.RunID) }}),
	})
	return f
}

// queue records a run that waits for the town, and returns its id.
func (f *fixture) queue() string {
	r := f.run()
	require.NoError(f.t, f.Record(f.t.Context(), r, nil))
	return r.Identity.RunID
}

// run returns a run that has to wait for the town.
func (f *fixture) run() *Run {
	state := town.NewState(&town.Snapshot{SchemaVersion: town.SchemaVersion, TownID: "t", Day: 1})
	h, err := handoff.New(handoff.Proposal{
		Type: handoff.TalkToTownsfolk, ActorID: "mayor-1", TownID: "t", Reason: "Because.",
		Args: map[string]string{"talkType": "casual"}, SnapshotHash: state.Hash,
	})
	require.NoError(f.t, err)
	id := runevents.Identity{
		RunID: uuid.NewString(), TenantID: "tenant", ProjectID: "project",
		EnvironmentID: "environment", PlanID: h.ProposalID, PlanVersion: h.Proposal.SchemaVersion,
	}
	r := &Run{Identity: id, Handoff: h, Queued: time.Now()}
	r.Wait()
	return r
}

func (f *fixture) tail(runID string) *commitlog.RunTail {
	tail, err := f.steps.Log.Tail(f.t.Context(), runID, 0)
	require.NoError(f.t, err)
	return &tail
}

// A waiting run of an earlier writer is ended with an alert; a record that the log no longer keeps
// has no run.
func TestReap_RunsOfAnEarlierWriter(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	first, second := f.queue(), f.queue()
	clear(f.own)
	own := f.queue()
	f.sweep(t.Context(), []uint64{2, 3, 4, 9})
	f.reapLeft(t.Context())
	require.False(t, f.tail(own).Cancelled)
	require.True(t, f.tail(first).Cancelled)
	require.True(t, f.tail(second).Cancelled)
	require.ElementsMatch(t, []string{first, second}, f.alerted)
	require.Empty(t, f.left)
}

// racingStore calls a function before it stores the next message.
type racingStore struct {
	commitlog.Store
	before func()
}

func (s *racingStore) Publish(ctx context.Context, msg *nats.Msg) (*jetstream.PubAck, error) {
	if before := s.before; before != nil {
		s.before = nil
		before()
	}
	return s.Store.Publish(ctx, msg)
}

// A run that another ended first raises no alert.
func TestReap_EndedByAnother(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	runID := f.queue()
	tail := f.tail(runID)
	f.steps.Log.Store = &racingStore{f.steps.Log.Store, func() {
		require.NoError(t, f.End(t.Context(), tail,
			machine.Cancellation{Reason: "An operator ended it."}))
	}}
	require.True(t, f.reap(t.Context(), runID, 0))
	require.True(t, f.tail(runID).Cancelled)
	require.Empty(t, f.alerted)
}

// discardingStore is a log that has discarded the messages of the town before a sequence.
type discardingStore struct {
	commitlog.Store
	from uint64
}

func (s *discardingStore) Next(
	ctx context.Context, subject string, seq uint64,
) (*jetstream.RawStreamMsg, error) {
	if subject == wire.LogSubject("main", "t") {
		seq = max(seq, s.from)
	}
	return s.Store.Next(ctx, subject, seq)
}

// A closed run whose decision the log has discarded has ended: it is not cancelled.
func TestReap_ForgottenEnd(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	r := f.run()
	require.NoError(t, f.Record(t.Context(), r, nil))
	require.NoError(t, f.Close(t.Context(), r))
	runID := r.Identity.RunID
	_, err := f.steps.Log.Commit(t.Context(), logtest.Put(t, 2), 1)
	require.NoError(t, err)
	f.steps.Log.Store = &discardingStore{f.steps.Log.Store, f.tail(runID).Guard + 1}
	require.True(t, f.reap(t.Context(), runID, closingTime))
	require.False(t, f.tail(runID).Cancelled)
	require.Empty(t, f.alerted)
}
