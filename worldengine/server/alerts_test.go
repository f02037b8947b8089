package server_test

import (
	"encoding/json"
	"flag"
	"fmt"
	"log/slog"
	"maps"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/nats-io/nats.go/jetstream"
	"github.com/stretchr/testify/require"

	"worldengine/handoff"
	"worldengine/runevents"
	"worldengine/worldengine/access"
	"worldengine/worldengine/apply"
	"worldengine/worldengine/messages"
	"worldengine/worldengine/natstest"
	"worldengine/worldengine/runs"
	"worldengine/worldengine/server"
	"worldengine/worldengine/server/servertest"
	"worldengine/worldengine/webhook"
	"worldengine/worldengine/wire"
)

func (c *client) alerts(request members) messages.Alerts {
	c.t.Helper()
	return call[messages.Alerts](c, "alert.list", request)
}

// raise stores alerts as the engine does, each with its run as the message.
func raise(t *testing.T, engine *client, count int) {
	t.Helper()
	js, err := jetstream.New(engine.nc)
	require.NoError(t, err)
	for i := range count {
		run := fmt.Sprint("run-", i)
		alert := runevents.Alert{
			Code: runevents.ApplyInDoubt, Severity: runevents.P1, RunID: run, Message: run,
			At: runevents.Timestamp(time.Now()),
		}
		_, err := js.Publish(t.Context(), wire.AlertSubject("main", string(alert.Code)),
			bodyOf(t, alert), jetstream.WithMsgID(alert.ID()))
		require.NoError(t, err)
	}
}

// Alerts come the newest first, page by page, to users who may read every town. One is acknowledged
// once, for all servers, by operators alone.
func TestAlerts(t *testing.T) {
	t.Parallel()
	bound := servertest.Person(access.Observer, named("bound"), reads("mine"))
	operator := newWorld(t, servertest.WithUsers(append(everybody(), bound)...))
	observer := operator.asRole(access.Observer)
	require.Empty(t, observer.alerts(members{}).Alerts)
	const count = 3
	raise(t, operator.asRole(access.Engine), count)
	eventually(t, func() bool { return len(observer.alerts(members{}).Alerts) == count })
	first := observer.alerts(members{"limit": 2})
	all := append(first.Alerts, observer.alerts(members{"after": first.Next}).Alerts...)
	for i, a := range all {
		require.Equal(t, []any{runevents.ApplyInDoubt, runevents.P1, fmt.Sprint("run-", count-1-i)},
			[]any{a.Code, a.Severity, a.Message})
		require.Nil(t, a.Acknowledged)
	}
	requireWorldForbidden(operator.as(bound), "alert.list")
	observer.refuses("alert.list", `{"limit":201}`, "SCHEMA_VALIDATION_FAILED")

	ack := func(actor, reason string) messages.Alert {
		return call[messages.Alert](operator.client, "alert.ack",
			members{"seq": all[1].Seq, "actorId": actor, "reason": reason})
	}
	got := ack("ada", "It was applied.")
	require.Equal(t, []string{all[1].ID, "operator", "It was applied."},
		[]string{got.ID, got.Acknowledged.By, got.Acknowledged.Reason})
	require.Equal(t, got, ack("bob", ""), "the first one counts")
	require.Equal(t, []messages.Alert{all[0], got, all[2]}, observer.alerts(members{}).Alerts)
	require.Equal(t, []messages.Alert{all[0], all[2]}, observer.alerts(members{"unacknowledged": true}).Alerts)
	for _, seq := range []uint64{count + 1, 99} { // the acknowledgement itself, and nothing
		operator.refuses("alert.ack", members{"seq": seq}, "UNKNOWN_ALERT")
	}
	operator.refuses("alert.ack", `{}`, "SCHEMA_VALIDATION_FAILED")
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

// awaitProjected waits until everything is projected.
func (c *client) awaitProjected() {
	c.t.Helper()
	eventually(c.t, func() bool {
		s := serviceStats[projectorStats](c)
		return *s.ProjectorBehind == 0 && *s.ProjectorLagMs == 0
	})
}

// A projector alerts about an invalid event without a reader, also about one that came while no
// server ran a projector, and about none again after a restart. Without a projector a reader's
// projection does so. Either way it is one alert, and the reader sees the run as it is.
func TestProjector_InvalidEvents(t *testing.T) {
	t.Parallel()
	log := &natstest.Buffer{}
	c := newWorld(t, projecting(true, log))
	var want []string
	invalid := func(runID string) {
		bad := written(runID, runevents.StepFailed, "build", 1)
		c.append("t", written(runID, runevents.RunStarted, "", 1), bad)
		want = append(want, bad.EventID)
	}
	read := func(runID string) {
		for range 2 {
			run := c.run(runID)
			require.Equal(t, runevents.RunRunning, run.Status)
			require.Equal(t, runevents.Inconsistent, run.Metadata.Consistency)
			require.Equal(t, want[len(want)-1:], run.Metadata.IgnoredEvents)
			if runID == "run-1" { // it is the only one
				require.Equal(t, run, c.listRuns(members{"limit": 5})[0].Snapshot)
			}
		}
	}
	told := func(count int) {
		eventually(t, func() bool { return len(invalidEvents(t, log)) >= count })
		require.Equal(t, want[:count], invalidEvents(t, log))
	}
	invalid("run-1")
	told(1)
	read("run-1")
	c.awaitProjected()
	c.restart(projecting(false, log))
	require.Equal(t, projectorStats{}, serviceStats[projectorStats](c.client))
	invalid("run-2")
	read("run-2")
	told(2)
	invalid("run-3")
	c.restart(projecting(true, log))
	told(3)
	invalid("run-4")
	told(4)
}

var floodAppends = flag.Int("flood.appends", 150,
	"how many appends of invalid events one client sends without waiting")

// One client appends invalid events as fast as it can. Alerts of others stay, each run has one alert
// a code, the events that are not projected yet are bounded, and a restart raises nothing again.
func TestAlerts_FloodOfInvalidEvents(t *testing.T) {
	t.Parallel()
	const events = 110 // an append: each is one INVALID_TRANSITION
	log := &natstest.Buffer{}
	c := newWorld(t, open, projecting(true, log))
	raise(t, c.client, 5)
	answers, err := c.nc.SubscribeSync(c.nc.NewInbox())
	require.NoError(t, err)
	require.NoError(t, answers.SetPendingLimits(-1, -1))
	for i := range *floodAppends {
		writes := make([]runevents.Write, events)
		for n := range writes {
			writes[n] = written(fmt.Sprint("flood-", i), runevents.StepCompleted, fmt.Sprint("s", n), 1)
		}
		require.NoError(t, c.nc.PublishRequest(wire.Subject(c.world, "run.append"), answers.Subject,
			bodyOf(t, appendRequest("t", writes...))))
	}
	codes := map[string]int{}
	for range *floodAppends {
		msg, err := answers.NextMsg(time.Minute)
		require.NoError(t, err)
		codes[codeOf(msg)]++
		require.LessOrEqual(t, *serviceStats[projectorStats](c.client).ProjectorBehind,
			int64(runs.MaxUndigested/events+1))
	}
	require.NotZero(t, codes[""])
	require.Equal(t, *floodAppends, codes[""]+codes["429"], "%v", codes)
	c.awaitProjected()
	require.Zero(t, serviceStats[struct{ AlertsLost int64 }](c.client).AlertsLost)
	require.Less(t, len(log.String()), 200_000)

	everyAlert := func() (list map[string]messages.Alert) {
		list = map[string]messages.Alert{}
		for after, more := uint64(0), true; more; {
			page := c.alerts(members{"after": after, "limit": 200})
			for _, a := range page.Alerts {
				require.NotContains(t, list, a.ID)
				list[a.ID] = a
			}
			after, more = page.Next, page.Next > 0
		}
		return list
	}
	all, ofRun := everyAlert(), map[string]int64{}
	for _, a := range all {
		require.Zero(t, ofRun[string(a.Code)+a.RunID], "one stands for the others")
		ofRun[string(a.Code)+a.RunID] = a.More + 1
	}
	require.EqualValues(t, events, ofRun["INVALID_TRANSITIONflood-0"])
	for i := range 5 {
		require.EqualValues(t, 1, ofRun[fmt.Sprint("APPLY_IN_DOUBTrun-", i)])
	}
	c.restart()
	c.awaitProjected()
	require.Subset(t, slices.Collect(maps.Keys(everyAlert())), slices.Collect(maps.Keys(all)))
}

// A webhook gets proposals that begin to wait for approval, and alerts, while one that never answers
// keeps no handoff waiting.
func TestWebhook(t *testing.T) {
	t.Parallel()
	posted := make(chan []byte, 10)
	takes := httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		var body json.RawMessage
		if json.NewDecoder(r.Body).Decode(&body) == nil {
			posted <- body
		}
	}))
	hanging := make(chan struct{})
	hangs := httptest.NewServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) { <-hanging }))
	t.Cleanup(func() { close(hanging); takes.Close(); hangs.Close() })

	c := newWorld(t, askFor("PROJECT_ADVANCE"), func(c *server.Config) {
		c.Engine.Plugin = apply.Policy{Deadline: 100 * time.Millisecond, Attempts: 1,
			Resend: 50 * time.Millisecond, Absent: apply.AbsentFail}
		c.Webhook = webhook.Config{Format: webhook.JSON, URLs: []string{hangs.URL, takes.URL}}
	})
	type body struct {
		World, Text string
		Approval    struct{ TownID, HandoffID, HandoffHash, Command string }
		Alert       struct{ Code, Severity, TownID string }
	}
	next := func() (b body) {
		require.NoError(t, json.Unmarshal(<-posted, &b))
		return b
	}
	at := c.putTown("t")
	for range 2 { // asked once, however often it is sent
		requireWaits(t, c.send(c.wall(at)))
	}
	waits, got := c.approvals(members{}).Approvals[0], next()
	require.Equal(t, "main", got.World)
	require.Equal(t, [4]string{"t", waits.HandoffID, waits.HandoffHash, waits.Command},
		[4]string{got.Approval.TownID, got.Approval.HandoffID, got.Approval.HandoffHash, got.Approval.Command})
	require.Contains(t, got.Text, "handoffctl approve "+waits.HandoffID)
	require.Equal(t, handoff.Failed, c.send(c.talk(c.putTown("away", "apply", "plugin"))).result.Status)
	got = next()
	require.Equal(t, [3]string{"PLUGIN_ABSENT", "P2", "away"},
		[3]string{got.Alert.Code, got.Alert.Severity, got.Alert.TownID})
}
