package server_test

import (
	"encoding/json"
	"fmt"
	"log/slog"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"worldengine/handoff"
	"worldengine/runevents"
	"worldengine/worldengine/natstest"
	"worldengine/worldengine/server"
	"worldengine/worldengine/wire"
)

// journal is a log that a test reads.
type journal struct{ natstest.Buffer }

// alerts returns what was alerted about: the codes and the eventIds.
func (j *journal) alerts(t *testing.T) (alerts []string) {
	for _, line := range strings.Split(strings.TrimSpace(j.String()), "\n") {
		var entry struct{ Msg, EventID string }
		if line != "" {
			require.NoError(t, json.Unmarshal([]byte(line), &entry))
		}
		if entry.Msg == string(runevents.InvalidTransition) {
			alerts = append(alerts, entry.Msg+" "+entry.EventID)
		}
	}
	return alerts
}

func projecting(projector bool, j *journal) func(*server.Config) {
	return func(c *server.Config) {
		c.Engine.Projector = projector
		c.Logger = slog.New(slog.NewJSONHandler(j, nil))
	}
}

// stats are the statistics of a server, as an operator asks for them.
type stats struct{ ProjectorLagMs, ProjectorBehind *int64 }

func (c *client) stats() stats {
	c.t.Helper()
	reply, err := c.nc.Request("$SRV.STATS."+wire.ServiceName, nil, 30*time.Second)
	require.NoError(c.t, err)
	var s struct{ Endpoints []struct{ Data stats } }
	require.NoError(c.t, json.Unmarshal(reply.Data, &s))
	require.NotEmpty(c.t, s.Endpoints)
	return s.Endpoints[0].Data
}

// With a projector, an invalid event is alerted about without anybody asking; without one, when a
// reader's projection meets it. Either way it is one alert, and the reader sees what the run is.
func TestInvalidEventsAreAlertedAbout(t *testing.T) {
	t.Parallel()
	for _, projector := range []bool{true, false} {
		t.Run(fmt.Sprintf("projector %v", projector), func(t *testing.T) {
			t.Parallel()
			var log journal
			c := connect(t, start(t, projecting(projector, &log)))
			bad := written("run", runevents.StepFailed, "build", 1)
			c.append("t", written("run", runevents.RunStarted, "", 1), bad)
			want := []string{"INVALID_TRANSITION " + bad.EventID}
			if projector {
				require.Eventually(t, func() bool { return len(log.alerts(t)) > 0 }, 20*time.Second,
					20*time.Millisecond)
			} else {
				require.Empty(t, log.alerts(t))
			}
			for range 2 {
				run := c.run("run")
				require.Equal(t, runevents.RunRunning, run.Status)
				require.Equal(t, runevents.Inconsistent, run.Metadata.Consistency)
				require.Equal(t, []string{bad.EventID}, run.Metadata.IgnoredEvents)
				rows := c.listRuns(map[string]any{"limit": 5})
				require.Len(t, rows, 1)
				require.Equal(t, run, rows[0].Snapshot)
			}
			require.Equal(t, want, log.alerts(t))
		})
	}
}

// What others append while no server runs a projector is alerted about by the next one, and what
// was alerted about before a restart is not again.
func TestAProjectorGoesOnAfterARestart(t *testing.T) {
	t.Parallel()
	var log journal
	data := t.TempDir()
	begin := func(projector bool) (*server.Server, *client) {
		srv, err := server.Start(t.Context(),
			configure(projecting(projector, &log), func(c *server.Config) { c.Data = data }))
		require.NoError(t, err)
		return srv, connect(t, srv)
	}
	bad := func(c *client, runID string) string {
		w := written(runID, runevents.RunCompleted, "", 1)
		c.append("t", w)
		return "INVALID_TRANSITION " + w.EventID
	}
	srv, c := begin(true)
	want := []string{bad(c, "run-1")}
	require.Eventually(t, func() bool { return len(log.alerts(t)) == 1 }, 30*time.Second,
		5*time.Millisecond)
	stop(t, srv)
	srv, c = begin(false)
	want = append(want, bad(c, "run-2"))
	stop(t, srv)
	require.Len(t, log.alerts(t), 1, "nobody has looked")
	srv, c = begin(true)
	require.Eventually(t, func() bool { return len(log.alerts(t)) == 2 }, 30*time.Second,
		5*time.Millisecond)
	want = append(want, bad(c, "run-3"))
	require.Eventually(t, func() bool { return len(log.alerts(t)) == 3 }, 30*time.Second,
		5*time.Millisecond)
	require.Equal(t, want, log.alerts(t))
	stop(t, srv)
}

// The statistics say how far the projector is behind, and nothing where there is none.
func TestProjectorStats(t *testing.T) {
	t.Parallel()
	var log journal
	c := connect(t, start(t, projecting(true, &log)))
	chain := newChain(t, c, "t")
	for range 20 {
		require.Equal(t, handoff.Executed, c.send(chain.next()).result.Status)
	}
	require.Eventually(t, func() bool {
		s := c.stats()
		return *s.ProjectorLagMs == 0 && *s.ProjectorBehind == 0
	}, 20*time.Second, 20*time.Millisecond)
	require.Empty(t, log.alerts(t))

	require.Equal(t, stats{}, connect(t, start(t)).stats())
}
