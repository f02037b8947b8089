package server_test

import (
	"encoding/json"
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"worldengine/handoff"
	"worldengine/runevents"
	"worldengine/schemas"
	"worldengine/worldengine"
	"worldengine/worldengine/apply"
	"worldengine/worldengine/lifecycle"
	"worldengine/worldengine/natstest"
	"worldengine/worldengine/server"
	"worldengine/worldengine/wire"
)

// absentFor asks plugins with short attempts, and waits for one that is absent or does not, without
// telling clients.
func absentFor(absent apply.Absent) func(*server.Config) {
	return func(c *server.Config) {
		c.Engine.PauseWait = time.Hour
		c.Engine.Apply = apply.Plugin
		c.Engine.Plugin = apply.Policy{
			Deadline: time.Second, Attempts: 3, Backoff: 10 * time.Millisecond, Resend: time.Second,
			Absent: absent,
		}
	}
}

// alertsOf returns the codes and towns of the alerts, the oldest first.
func alertsOf(c *client) (told []string) {
	c.t.Helper()
	page := call[struct{ Alerts []runevents.Alert }](c, "alert.list", schemas.AlertListReply,
		map[string]any{"limit": 100})
	for i := len(page.Alerts) - 1; i >= 0; i-- {
		told = append(told, fmt.Sprint(page.Alerts[i].Code, " ", page.Alerts[i].TownID))
	}
	return told
}

func absentSince(c *client, townID string) string {
	c.t.Helper()
	return call[struct{ PluginAbsentSince string }](c, "town.get", schemas.TownGetReply,
		map[string]any{"townId": townID}).PluginAbsentSince
}

// A command whose town has no plugin waits, unless its server is told otherwise, until one is
// there, whatever the attempts are, also through a restart: it is applied then. That no plugin is
// there is told once, and once that one is there again.
func TestACommandWaitsForAnAbsentPlugin(t *testing.T) {
	t.Parallel()
	data := t.TempDir()
	in := func(c *server.Config) { c.Data = data }
	srv, err := server.Start(t.Context(), configure(in, absentFor(""), withMetrics))
	require.NoError(t, err)
	c := connect(t, srv)
	at := c.put(snapshot("t"), "")
	require.Empty(t, absentSince(c, "t"))
	body := marshalled(t, propose(at, handoff.AdvanceProject, "wall"))
	// more than all attempts
	_, err = c.nc.Request(wire.Subject(c.world, "handoff"), body, 5*time.Second)
	require.Error(t, err, "there is a result without a plugin")
	require.NotEmpty(t, absentSince(c, "t"))
	require.Equal(t, []string{"PLUGIN_ABSENT t"}, alertsOf(c))
	require.Contains(t, scrape(t, srv), "handoffd_plugins_absent 1\n")
	since, runID := absentSince(c, "t"), c.pending("t")
	refused := c.refused("handoff", body)
	require.Equal(t, failure{Status: 503, Code: "EXECUTION_IN_PROGRESS", RetryAfter: "1000"},
		short(refused))
	require.Contains(t, refused.Message, "accepted as run "+runID+
		", and its command waits: the town \"t\" has had no plugin since")
	run := call[struct{ Status, PluginAbsentSince string }](c, "run.get", schemas.RunGetReply,
		map[string]any{"runId": runID})
	require.Equal(t, "RUNNING since "+since, run.Status+" since "+run.PluginAbsentSince)
	reply, err := c.nc.Request(wire.Subject(c.world, "handoff"), body, 10*time.Second)
	require.NoError(t, err)
	require.Equal(t, runID, reply.Header.Get(wire.RunIDHeader))
	stop(t, srv)

	srv = start(t, in, absentFor(""))
	c = connect(t, srv)
	require.Eventually(t, func() bool { return absentSince(c, "t") != "" }, 30*time.Second,
		10*time.Millisecond)
	require.LessOrEqual(t, since[:19], absentSince(c, "t")[:19])
	require.Equal(t, "EXECUTION_IN_PROGRESS", c.refused("handoff", body).Code)
	require.Equal(t, []string{"PLUGIN_ABSENT t"}, alertsOf(c), "told again after a restart")
	g := host(t, srv, agree)
	require.Eventually(t, func() bool { return c.town("t").DecisionEpoch == at.DecisionEpoch+1 },
		30*time.Second, 10*time.Millisecond)
	require.Equal(t, int64(1), g.commands()[0].LogicalAttemptID, "the absence was no attempt")
	require.Eventually(t, func() bool { return len(alertsOf(c)) == 2 }, 30*time.Second,
		10*time.Millisecond)
	require.Equal(t, []string{"PLUGIN_ABSENT t", "PLUGIN_RETURNED t"}, alertsOf(c))
	require.Empty(t, absentSince(c, "t"))
}

// A town that is bound to something else needs no plugin: that none was there is over.
func TestATownThatNeedsNoPluginIsNotAbsent(t *testing.T) {
	t.Parallel()
	srv := start(t, absentFor(apply.AbsentFail), withMetrics, func(c *server.Config) {
		c.Engine.Plugin.Deadline, c.Engine.Plugin.Attempts, c.Engine.Plugin.Resend = 2*time.Second,
			1, time.Minute
	})
	c := connect(t, srv)
	at := c.put(snapshot("t"), "")
	failed := c.send(marshalled(t, propose(at, handoff.AdvanceProject, "wall")))
	require.Equal(t, apply.ReasonPluginUnavailable, failed.result.ReasonCode)
	require.Contains(t, scrape(t, srv), "handoffd_plugins_absent 1\n")
	request := putRequest(snapshot("t"), at.SnapshotHash)
	request["apply"] = "local"
	call[townReply](c, "town.put", schemas.TownGetReply, request)
	require.Eventually(t, func() bool { return len(alertsOf(c)) == 2 }, 30*time.Second,
		10*time.Millisecond)
	require.Equal(t, []string{"PLUGIN_ABSENT t", "PLUGIN_RETURNED t"}, alertsOf(c))
	require.Contains(t, scrape(t, srv), "handoffd_plugins_absent 0\n")
}

// cancel cancels a run of the town t. A request that is on its way just then refuses it, and the
// operator tries again.
func cancel(c *client, told *server.Server, runID string) {
	c.t.Helper()
	require.Eventually(c.t, func() bool {
		_, _ = told.Engine().Signal(c.t.Context(),
			worldengine.Signal{Kind: lifecycle.SignalCancel, RunID: runID})
		return c.pending("t") != runID
	}, 60*time.Second, 10*time.Millisecond)
}

// The time of a command begins when a plugin is there: it is asked for with the whole of it left.
func TestTheTimeOfACommandBeginsWithThePlugin(t *testing.T) {
	t.Parallel()
	srv := start(t, absentFor(apply.AbsentWait),
		func(c *server.Config) { c.Engine.Plugin.Deadline = time.Minute })
	c := connect(t, srv)
	at := c.put(snapshot("t"), "")
	reply := c.sendLater(marshalled(t, propose(at, handoff.AdvanceProject, "wall")))
	require.Eventually(t, func() bool { return absentSince(c, "t") != "" }, 30*time.Second,
		10*time.Millisecond)
	g := host(t, srv, agree)
	require.Equal(t, handoff.Executed, c.resultOf(<-reply).result.Status)
	require.Greater(t, g.commands()[0].TimeoutMs, int64(59_000))
	require.Greater(t, time.Until(g.commands()[0].Deadline), 30*time.Second)
}

// Where commands do not wait their handoffs fail; the absence is told once, whatever
// comes.
func TestACommandFailsWithoutAPlugin(t *testing.T) {
	t.Parallel()
	natstest.Patiently(t, time.Second, func(deadline time.Duration) string {
		return failsWithoutAPlugin(t, deadline)
	})
}

func failsWithoutAPlugin(t *testing.T, deadline time.Duration) (wrong string) {
	srv := start(t, absentFor(apply.AbsentFail), askedOnce(deadline))
	c := connect(t, srv)
	c.within = deadline + 20*time.Second
	at := c.put(snapshot("t"), "")
	for i := range 2 {
		p := propose(at, handoff.AdvanceProject, "wall")
		p.Reason = fmt.Sprint("Once more: ", i)
		p.Priority = float64(i) / 10
		if wrong := unavailable(c.send(marshalled(t, p))); wrong != "" {
			return wrong
		}
	}
	require.Eventually(t, func() bool { return len(alertsOf(c)) > 0 }, 30*time.Second,
		10*time.Millisecond)
	host(t, srv, agree)
	talked := c.send(marshalled(t, propose(at, handoff.TalkToTownsfolk, "casual"))).result
	if talked.Status != handoff.Executed {
		return fmt.Sprintf("%s: %s", talked.Status, talked.ReasonCode)
	}
	require.Eventually(t, func() bool { return len(alertsOf(c)) > 1 }, 30*time.Second,
		10*time.Millisecond)
	require.Equal(t, []string{"PLUGIN_ABSENT t", "PLUGIN_RETURNED t"}, alertsOf(c))
	page := call[struct{ Alerts []map[string]any }](c, "alert.list", schemas.AlertListReply,
		map[string]any{"limit": 100})
	said, err := json.Marshal(page.Alerts[1])
	require.NoError(t, err)
	require.Regexp(t, `Town \\"t\\" has had no plugin or console since \S+Z; commands in hand: 1\. `+
		`Each fails with PLUGIN_UNAVAILABLE when its attempts are over\.`, string(said))
	return ""
}

// Each absence that one run finds is told, and each end of one: a plugin is there when it replies,
// and not because its town is silent.
func TestEachAbsenceOfARunIsTold(t *testing.T) {
	t.Parallel()
	srv := start(t, absentFor(apply.AbsentWait), func(c *server.Config) {
		c.Engine.Plugin.Deadline, c.Engine.Plugin.Resend = 10*time.Minute, 300*time.Millisecond
	})
	c := connect(t, srv)
	at := c.put(snapshot("t"), "")
	reply := c.sendLater(marshalled(t, propose(at, handoff.AdvanceProject, "wall")))
	tells := func(want ...string) {
		t.Helper()
		require.Eventually(t, func() bool { return len(alertsOf(c)) >= len(want) }, 30*time.Second,
			10*time.Millisecond)
		require.Equal(t, want, alertsOf(c))
	}
	tells("PLUGIN_ABSENT t")
	speaks := make(chan struct{})
	g := host(t, srv, func(command *apply.Command, _ int) (apply.Answer, bool) {
		select {
		case <-speaks:
			return apply.Later(command, apply.Busy, time.Millisecond), true
		default:
			return apply.Answer{}, false
		}
	})
	g.until(4) // which were silent
	require.NotEmpty(t, absentSince(c, "t"))
	tells("PLUGIN_ABSENT t")
	close(speaks)
	tells("PLUGIN_ABSENT t", "PLUGIN_RETURNED t")
	g.nc.Close()
	tells("PLUGIN_ABSENT t", "PLUGIN_RETURNED t", "PLUGIN_ABSENT t")
	host(t, srv, agree)
	require.Equal(t, handoff.Executed, c.resultOf(<-reply).result.Status)
	tells("PLUGIN_ABSENT t", "PLUGIN_RETURNED t", "PLUGIN_ABSENT t", "PLUGIN_RETURNED t")
	page := call[struct {
		Alerts []struct{ ID, Since, Message string }
	}](c, "alert.list", schemas.AlertListReply,
		map[string]any{"limit": 100})
	ids := map[string]bool{}
	for _, alert := range page.Alerts {
		ids[alert.ID] = true
		require.NotEmpty(t, alert.Since)
	}
	require.Len(t, ids, 4)
	require.Contains(t, page.Alerts[3].Message, "They wait until the game is back.")
}
