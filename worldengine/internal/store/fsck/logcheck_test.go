package fsck

import (
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/nats-io/nats.go/jetstream"
	"github.com/stretchr/testify/require"

	"worldengine/handoff"
	"worldengine/runevents"
	"worldengine/worldengine/internal/core/apply"
	"worldengine/worldengine/internal/core/machine"
	"worldengine/worldengine/internal/core/runlog"
	"worldengine/worldengine/internal/core/town"
	"worldengine/worldengine/internal/core/town/towntest"
	"worldengine/worldengine/internal/store/commitlog/logtest"
	"worldengine/worldengine/internal/testkit/natstest"
	"worldengine/worldengine/messages"
)

func TestMain(m *testing.M) { natstest.Main(m, 1) }

// Two events of one record have different ids, also if another producer appended them.
func TestLogChecker_SameID(t *testing.T) {
	t.Parallel()
	log := logtest.New(t)
	at := runevents.Timestamp(time.Now())
	event := runlog.Event{EventID: uuid.NewString(), EventType: runevents.RunStarted,
		LogicalAttemptID: 1, EmittedAt: at}
	other := event
	other.EventType = runevents.RunCompleted
	_, err := log.CommitRun(t.Context(), &machine.Record{
		Kind: machine.KindAppended, TownID: "t", Run: &runlog.Run{
			Identity: runevents.Identity{RunID: "others", TenantID: "default", ProjectID: "main",
				EnvironmentID: "local", PlanID: "plan", PlanVersion: "1"},
			FirstSeq: 1, Events: []runlog.Event{event, other},
		}}, 0)
	require.NoError(t, err)
	stored := func(seq uint64) (*jetstream.RawStreamMsg, error) { return log.At(t.Context(), seq) }
	m, err := stored(1)
	require.NoError(t, err)
	found, err := NewLogChecker("main", stored).Check(m)
	require.NoError(t, err)
	require.Len(t, found, 1)
	require.Contains(t, found[0].What, "was there before: runSeq 2")
}

// A run that waits and is then cancelled stays a run of one town, and has a valid id, though its
// handoff is never judged.
func TestLogChecker_CancelledWait(t *testing.T) {
	t.Parallel()
	const home = "town-threatened"
	h := towntest.Propose(t, towntest.Threatened(), handoff.TalkToTownsfolk, "casual")
	rules := town.DefaultRules()
	settings := machine.Settings{Rules: &rules, Binding: apply.Local}
	for _, c := range []struct {
		runID, paused string // the town in which the run is paused
		want          []string
	}{
		{uuid.NewString(), home, nil},
		{uuid.NewString(), "another", []string{"the run is not the one of its records before"}},
		{"run-1", home, []string{"the id of the run is not a UUID v4"}},
	} {
		log := logtest.New(t)
		stored := func(seq uint64) (*jetstream.RawStreamMsg, error) { return log.At(t.Context(), seq) }
		check, tail := NewLogChecker("main", stored), machine.NewTail(nil, 0)
		run := runevents.Identity{RunID: c.runID, TenantID: "default", ProjectID: "main",
			EnvironmentID: "local", PlanID: h.ProposalID, PlanVersion: h.Proposal.SchemaVersion}
		wait := machine.Wait{Handoff: h, Run: run, Start: machine.RunStart{Queued: true}}
		paused := wait
		paused.By = &messages.PausedBy{SignalID: uuid.NewString()}
		var got []string
		step := func(townID string, event machine.Event) {
			in := machine.Input{TownID: townID, At: time.Now(), Tail: tail, Event: event}
			for range event.MaxIDs() {
				in.IDs = append(in.IDs, uuid.NewString())
			}
			out, err := machine.Step(machine.Town{}, &in, &settings)
			require.NoError(t, err)
			seq, err := log.CommitRun(t.Context(), out.Record, tail.Guard)
			require.NoError(t, err)
			tail.Add(out.Record, seq)
			m, err := stored(seq)
			require.NoError(t, err)
			found, err := check.Check(m)
			require.NoError(t, err)
			for _, f := range found {
				got = append(got, f.What)
			}
		}
		step(home, &wait)
		step(c.paused, &paused)
		step(home, &machine.CancelWaiting{Run: run, Why: machine.Cancellation{Code: machine.CancelledLeft}})
		require.Equal(t, c.want, got)
	}
}
