package server_test

import (
	"encoding/json"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"worldengine/handoff"
	"worldengine/runevents"
	"worldengine/worldengine/access"
	"worldengine/worldengine/apply"
	"worldengine/worldengine/messages"
	"worldengine/worldengine/natstest"
	"worldengine/worldengine/server"
	"worldengine/worldengine/server/servertest"
	"worldengine/worldengine/webhook"
)

func (c *client) alerts(request members) messages.Alerts {
	c.t.Helper()
	return call[messages.Alerts](c, "alert.list", request)
}

// invalidEvents returns the eventIds of the lines of a log about invalid events.
func invalidEvents(t *testing.T, log *natstest.Buffer) (ids []string) {
	for line := range strings.Lines(log.String()) {
		var entry struct{ Msg, EventID string }
		require.NoError(t, json.Unmarshal([]byte(line), &entry))
		if entry.Msg == string(runevents.InvalidTransition) {
			ids = append(ids, entry.EventID)
		}
	}
	return ids
}

func projecting(projector bool, log *natstest.Buffer) func(*server.Config) {
	return func(c *server.Config) {
		c.Engine.Projector = projector
		c.Logger = slog.New(slog.NewJSONHandler(log, nil))
	}
}

// projectorStats are the statistics of a projector, nil without one.
type projectorStats struct{ ProjectorLagMs, ProjectorBehind *int64 }

// A projector alerts about an invalid event without a reader, and about none again after a restart.
// Without a projector a reader's projection does so. Either way it is one alert, and the reader sees
// the run as it is. Alerts are about all towns, and operators acknowledge them in their own name.
func TestProjector_InvalidEvents(t *testing.T) {
	t.Parallel()
	log := &natstest.Buffer{}
	bound := servertest.Person(access.Observer, named("bound"), reads("t"))
	c := newWorld(t, projecting(true, log), servertest.WithUsers(append(everybody(), bound)...))
	var want []string
	invalid := func(runID string) {
		bad := written(runID, runevents.StepFailed, "build", 1)
		c.append("t", written(runID, runevents.RunStarted, "", 1), bad)
		want = append(want, bad.EventID)
	}
	told := func() {
		eventually(t, func() bool { return len(invalidEvents(t, log)) >= len(want) })
		require.Equal(t, want, invalidEvents(t, log))
	}
	invalid("run-1")
	told()
	eventually(t, func() bool {
		s := serviceStats[projectorStats](c.client)
		return *s.ProjectorBehind == 0 && *s.ProjectorLagMs == 0
	})
	c.restart(projecting(false, log))
	require.Equal(t, projectorStats{}, serviceStats[projectorStats](c.client))
	invalid("run-2")
	for range 2 {
		run := c.run("run-2")
		require.Equal(t, []any{runevents.RunRunning, runevents.Inconsistent, want[1:]},
			[]any{run.Status, run.Metadata.Consistency, run.Metadata.IgnoredEvents})
	}
	told()
	invalid("run-3")
	c.restart(projecting(true, log))
	told()

	c.awaitAlert(runevents.InvalidTransition)
	requireWorldForbidden(c.as(bound), "alert.list")
	seq := c.asRole(access.Observer).alerts(members{}).Alerts[0].Seq
	for _, actor := range []string{"ada", "bob"} {
		got := call[messages.Alert](c.client, "alert.ack", members{"seq": seq, "actorId": actor, "reason": actor})
		require.Equal(t, []string{"operator", "ada"}, []string{got.Acknowledged.By, got.Acknowledged.Reason},
			"the first one counts")
	}
	c.refuses("alert.ack", members{"seq": 99}, "UNKNOWN_ALERT")
}

// A webhook gets proposals that begin to wait for approval, and alerts, while one that never answers
// keeps no handoff waiting.
func TestWebhook(t *testing.T) {
	t.Parallel()
	posted, hanging := make(chan []byte, 10), make(chan struct{})
	takes := httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		if body, err := io.ReadAll(r.Body); err == nil {
			posted <- body
		}
	}))
	hangs := httptest.NewServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) { <-hanging }))
	t.Cleanup(func() { close(hanging); takes.Close(); hangs.Close() })
	c := newWorld(t, askFor("PROJECT_ADVANCE"), func(c *server.Config) {
		c.Engine.Plugin = apply.Policy{Deadline: 100 * time.Millisecond, Attempts: 1,
			Resend: 50 * time.Millisecond, Absent: apply.AbsentFail}
		c.Webhook = webhook.Config{Format: webhook.JSON, URLs: []string{hangs.URL, takes.URL}}
	})
	var got struct {
		World    string
		Approval struct{ TownID, HandoffID, HandoffHash, Command string }
		Alert    struct{ Code, Severity, TownID string }
	}
	at := c.putTown("t")
	for range 2 { // asked once, however often it is sent
		requireWaits(t, c.send(c.wall(at)))
	}
	waits := c.approvals(members{}).Approvals[0]
	require.NoError(t, json.Unmarshal(<-posted, &got))
	require.Equal(t, [5]string{"main", "t", waits.HandoffID, waits.HandoffHash, waits.Command}, [5]string{got.World,
		got.Approval.TownID, got.Approval.HandoffID, got.Approval.HandoffHash, got.Approval.Command})
	require.Equal(t, handoff.Failed, c.send(c.talk(c.putTown("away", "apply", "plugin"))).result.Status)
	require.NoError(t, json.Unmarshal(<-posted, &got))
	require.Equal(t, [3]string{"PLUGIN_ABSENT", "P2", "away"},
		[3]string{got.Alert.Code, got.Alert.Severity, got.Alert.TownID})
}
