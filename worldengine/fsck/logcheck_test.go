package fsck

import (
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/stretchr/testify/require"

	"worldengine/runevents"
	"worldengine/worldengine/commitlog"
	"worldengine/worldengine/commitlog/logtest"
	"worldengine/worldengine/machine"
	"worldengine/worldengine/natstest"
	"worldengine/worldengine/wire"
)

func TestMain(m *testing.M) { natstest.Main(m, 1) }

// A run that has waited for long without a server is found; a new one, or one with its end, is not.
func TestLogCheck_LeftWaiting(t *testing.T) {
	t.Parallel()
	log := logtest.New(t)
	_, err := log.Commit(t.Context(), logtest.Put(t, 1), 0)
	require.NoError(t, err)
	runID := uuid.NewString()
	p := logtest.NewProducer(runevents.Identity{
		RunID: runID, TenantID: "default", ProjectID: "main", EnvironmentID: "local",
		PlanID: "plan", PlanVersion: "1",
	})
	require.NoError(t, p.OfRun(runevents.RunQueued, nil))
	guard, next := uint64(0), int64(1)
	extend := func(closing bool) {
		rec := &commitlog.Record{Kind: commitlog.KindRun, TownID: "t", Run: p.Run(), Closing: closing}
		next += int64(len(rec.Run.Events))
		guard, err = log.CommitRun(t.Context(), rec, guard)
		require.NoError(t, err)
		p.Persisted(next)
	}
	extend(false)

	check := NewLogCheck("main", &Counts{})
	read := uint64(0)
	left := func(since time.Time) []Finding {
		end, err := log.End(t.Context())
		require.NoError(t, err)
		for ; read < end; read++ {
			m, err := log.At(t.Context(), read+1)
			require.NoError(t, err)
			require.Empty(t, check.Check(m).Own)
		}
		return check.leftWaiting(since)
	}
	require.Empty(t, left(time.Now().Add(-waitingLimit)), "a server may have it still")
	found := left(time.Now().Add(time.Second))
	require.Len(t, found, 1)
	require.Equal(t, LeftWaiting, found[0].Kind)
	require.Equal(t, []string{"t", wire.RunSubject("main", runID), "PENDING"}, []string{
		found[0].Town, found[0].Subject, found[0].Got,
	})

	require.NoError(t, p.OfRun(runevents.RunStarted, nil))
	require.NoError(t, p.OfRun(runevents.RunPaused, map[string]string{"signalId": "signal"}))
	extend(false)
	found = left(time.Now().Add(time.Second))
	require.Len(t, found, 1)
	require.Equal(t, "PAUSED", found[0].Got)

	require.NoError(t, p.OfRun(runevents.RunCancelled, machine.Cancellation{}))
	extend(true)
	require.Empty(t, left(time.Now().Add(time.Second)), "it has its end")
}

// Two events of one record have different ids, also if another producer appended them.
func TestLogCheck_SameID(t *testing.T) {
	t.Parallel()
	log := logtest.New(t)
	at := runevents.Timestamp(time.Now())
	event := runevents.Event{EventID: uuid.NewString(), EventType: runevents.RunStarted,
		LogicalAttemptID: 1, EmittedAt: at}
	other := event
	other.EventType = runevents.RunCompleted
	_, err := log.CommitRun(t.Context(), &commitlog.Record{
		Kind: commitlog.KindEvents, TownID: "t", Run: &runevents.Run{
			Identity: runevents.Identity{RunID: "others", TenantID: "default", ProjectID: "main",
				EnvironmentID: "local", PlanID: "plan", PlanVersion: "1"},
			FirstSeq: 1, Events: []runevents.Event{event, other},
		}}, 0)
	require.NoError(t, err)
	m, err := log.At(t.Context(), 1)
	require.NoError(t, err)
	found := NewLogCheck("main", &Counts{}).Check(m).Own
	require.Len(t, found, 1)
	require.Contains(t, found[0].What, "was there before: runSeq 2")
}
