package fsck

import (
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/nats-io/nats.go/jetstream"
	"github.com/stretchr/testify/require"

	"worldengine/runevents"
	"worldengine/worldengine/commitlog"
	"worldengine/worldengine/commitlog/logtest"
	"worldengine/worldengine/natstest"
)

func TestMain(m *testing.M) { natstest.Main(m, 1) }

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
	stored := func(seq uint64) (*jetstream.RawStreamMsg, error) { return log.At(t.Context(), seq) }
	m, err := stored(1)
	require.NoError(t, err)
	found, err := NewLogCheck("main", stored).Check(m)
	require.NoError(t, err)
	require.Len(t, found, 1)
	require.Contains(t, found[0].What, "was there before: runSeq 2")
}
