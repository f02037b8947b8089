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
	"worldengine/worldengine/commitlog"
	"worldengine/worldengine/commitlog/logtest"
	"worldengine/worldengine/lifecycle"
	"worldengine/worldengine/natstest"
	"worldengine/worldengine/runs"
	"worldengine/worldengine/town"
	"worldengine/worldengine/wire"
)

func TestMain(m *testing.M) { natstest.Main(m, 4) }

// fixture is a Store over a log with the town "t". It is the Index too: one entry, which last
// counts.
type fixture struct {
	Index
	*Store
	t       *testing.T
	last    uint64
	removed []uint64
	// alerted are the runs that operators were told of.
	alerted []string
}

func (f *fixture) IsLast(_ context.Context, _ string, seq uint64) (bool, error) {
	return seq == f.last, nil
}

func (f *fixture) Remove(_ context.Context, seq uint64) { f.removed = append(f.removed, seq) }

func newFixture(t *testing.T) *fixture {
	log := logtest.New(t)
	_, err := log.Commit(t.Context(), logtest.Put(t, 1), 0)
	require.NoError(t, err)
	f := &fixture{t: t}
	logger := slog.New(slog.DiscardHandler)
	f.Store = New(log, runs.New(log, nil, runs.Config{World: "main", Retention: time.Hour,
		Logger: logger}), f, Config{
		World: "main", Server: "server",
		NewProducer: logtest.NewProducer,
		Ended:       func(context.Context, string) (bool, error) { return false, nil },
		Left: func(run runevents.Identity, _ string, _ error) {
			f.alerted = append(f.alerted, run.RunID)
		},
		Logger: logger,
	})
	return f
}

// queue records a run that waits for the town, and returns its id.
func (f *fixture) queue() string {
	r := f.run()
	require.NoError(f.t, f.Queue(f.t.Context(), r))
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
	r := &Run{Identity: id, Handoff: h, Queued: time.Now(), Producer: f.config.NewProducer(id)}
	r.Wait()
	return r
}

func (f *fixture) tail(runID string) *commitlog.RunTail {
	tail, err := f.log.Tail(f.t.Context(), runID, 0)
	require.NoError(f.t, err)
	return &tail
}

// A lease that looks ended, because a renewal of it is not taken yet, is left alone.
func TestRenewedLease(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	runID := f.queue()
	ended := lease{
		WaitingRuns: commitlog.WaitingRuns{TownID: "t", Runs: []string{runID}}, seq: 1,
		ends: time.Now(),
	}
	leases := map[string]lease{"subject": ended}
	f.last = 2
	f.reapEnded(t.Context(), leases)
	require.False(t, f.tail(runID).Cancelled, "the run of a living server was ended")
	require.Empty(t, leases)
	require.Empty(t, f.removed)

	leases["subject"], f.last = ended, 1 // and nothing renews it
	f.reapEnded(t.Context(), leases)
	require.True(t, f.tail(runID).Cancelled)
	require.Equal(t, []string{runID}, f.alerted)
	require.Empty(t, leases)
	require.Equal(t, []uint64{1}, f.removed)
}

// A renewal that comes while the first runs of a lease are ended keeps the others.
func TestLeaseRenewedBetweenRuns(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	first, second := f.queue(), f.queue()
	left := f.config.Left
	f.config.Left = func(run runevents.Identity, townID string, err error) {
		left(run, townID, err)
		f.last = 2
	}
	f.last = 1
	f.reapEnded(t.Context(), map[string]lease{"subject": {
		WaitingRuns: commitlog.WaitingRuns{TownID: "t", Runs: []string{first, second}}, seq: 1,
		ends: time.Now(),
	}})
	require.True(t, f.tail(first).Cancelled)
	require.False(t, f.tail(second).Cancelled, "the run of a living server was ended")
	require.Equal(t, []string{first}, f.alerted)
	require.Empty(t, f.removed)
}

// A lease counts from its arrival: how old NATS says that it is, by a clock of its own, means
// nothing.
func TestLeaseCountsFromItsArrival(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	leases := map[string]lease{}
	arrived := time.Now()
	f.take(leases, commitlog.IndexEntry{Subject: "subject", Seq: 1, Data: []byte(`{}`),
		Age: time.Hour})
	require.False(t, leases["subject"].ends.Before(arrived.Add(leaseTime)))
}

// racingStore has something happen before the next message is stored.
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

// Operators are not told of a run that another ended first.
func TestNoAlertForARunThatAnotherEnds(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	runID := f.queue()
	tail := f.tail(runID)
	f.log.Store = &racingStore{f.log.Store, func() {
		require.NoError(t, f.End(t.Context(), tail,
			lifecycle.Cancellation{Reason: "An operator ended it."}))
	}}
	require.True(t, f.reap(t.Context(), runID, 0))
	require.True(t, f.tail(runID).Cancelled)
	require.Empty(t, f.alerted)
}

// The index tells the last entry of a subject from those before it and from one that was removed.
func TestIndexIsLast(t *testing.T) {
	t.Parallel()
	js, err := jetstream.New(natstest.Connect(t))
	require.NoError(t, err)
	stream, err := js.CreateStream(t.Context(), commitlog.PendingIndexConfig("main", 1))
	require.NoError(t, err)
	index := commitlog.NewPendingIndex("main", js, stream)
	subject := wire.WaitingSubject("main", wire.TownToken("t"), "server")
	requireLast := func(want bool, seq uint64) {
		t.Helper()
		last, err := index.IsLast(t.Context(), subject, seq)
		require.NoError(t, err)
		require.Equal(t, want, last)
	}
	put := func() {
		require.NoError(t, index.PutWaiting(t.Context(), "server",
			commitlog.WaitingRuns{TownID: "t"}))
	}
	put()
	requireLast(true, 1)
	put()
	requireLast(false, 1)
	requireLast(true, 2)
	index.Remove(t.Context(), 2)
	requireLast(false, 2)
}
