package handoffctl

import (
	"strings"
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/nats-io/nats.go"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"worldengine/handoff"
	"worldengine/runevents"
	"worldengine/worldengine/client"
	"worldengine/worldengine/internal/engine"
	"worldengine/worldengine/internal/store/commitlog/logtest"
	"worldengine/worldengine/internal/store/worldsettings"
	"worldengine/worldengine/messages"
	"worldengine/worldengine/wire"
)

// Each command takes the beginning of a run's id, if no other run has it.
func TestRunID_Short(t *testing.T) {
	c := online(t)
	made := c.handoff()
	sent := c.send(made)
	brief := sent.RunID[:8]
	assert.Contains(t, c.ok("run", "get", brief), sent.RunID)
	assert.Contains(t, c.ok("run", "events", brief, "-o", "json"), sent.RunID)
	assert.Contains(t, c.ok("watch", "--since", "1h", "--count", "1", "--run", brief), sent.RunID)
	assert.Contains(t, c.ok("record", "--run", brief), `"status":"executed"`)

	for range 17 { // two of so many ids begin with the same character, of sixteen
		c.pipe(made, "send", "-")
	}
	ids := []string{}
	for _, line := range strings.Split(strings.TrimSpace(c.ok("run", "list")), "\n")[1:] {
		ids = append(ids, strings.Fields(line)[0])
	}
	require.GreaterOrEqual(t, len(ids), 18) // on a busy machine a request may be sent twice
	first := map[string]int{}
	ambiguous := ""
	for _, id := range ids {
		if first[id[:1]]++; first[id[:1]] > 1 {
			ambiguous = id[:1]
		}
	}
	require.NotEmpty(t, ambiguous)
	for _, command := range [][]string{
		{"run", "get"}, {"run", "events"}, {"run", "cancel"}, {"watch", "--run"},
		{"record", "--run"},
	} {
		got := c.run(append(command, ambiguous)...)
		assert.Equal(t, exitUsage, got.status, command)
		assert.Regexp(t, `^handoffctl: \d+ runs have an id that begins with `+ambiguous+
			`, such as `+ambiguous+
			`\S+ and `+ambiguous+`\S+: give more of it\n$`, got.err, command)
	}
	c.fails(exitRefused, "UNKNOWN_RUN (404)", "run", "get", "zz")
}

// Of a world of more runs than are looked at, a short text may be the whole id of an older run.
func TestRunID_ManyRuns(t *testing.T) {
	c := faked(t, map[string]string{})
	nc := c.connect()
	answer := func(verb wire.Verb, with func(asked string) string) {
		_, err := nc.Subscribe(wire.Subject("main", verb), func(request *nats.Msg) {
			body := with(string(request.Data))
			reply := &nats.Msg{Data: []byte(body), Header: nats.Header{}}
			if strings.HasPrefix(body, `{"error"`) {
				reply.Header.Set(wire.ErrorCodeHeader, "404")
			}
			_ = request.RespondMsg(reply)
		})
		require.NoError(t, err)
	}
	const match = "abcdef00-0000-4000-8000-000000000000"
	answer(wire.RunList, func(asked string) string {
		runs := ""
		if strings.Contains(asked, `"id":"abc`) && !strings.Contains(asked, "after") {
			runs = `{"runId":"` + match + `"}`
		}
		return `{"next":7,"searched":2000,"runs":[` + runs + `]}`
	})
	answer(wire.RunGet, func(asked string) string {
		if strings.Contains(asked, `"abc"`) || strings.Contains(asked, match) {
			return strings.Replace(asked, "{", `{"status":"PENDING",`, 1)
		}
		return `{"error":{"code":"UNKNOWN_RUN","message":"There is none.","details":[]}}`
	})
	cancelled := make(chan string, 8)
	answer(wire.RunCancel, func(asked string) string { cancelled <- asked; return `{}` })
	require.NoError(t, nc.Flush())

	assert.Regexp(t, `(?m)^run +abc$`, c.ok("run", "get", "abc"),
		"an older run has the text for an id")
	assert.Regexp(t, `(?m)^run +`+match+`$`, c.ok("run", "get", "abcd"))
	c.fails(exitUsage, "ids that begin with zz were searched among the newest 10000 runs alone: "+
		"give the whole id", "run", "get", "zz")
	c.fails(exitUsage, "give the whole id", "run", "cancel", "abcd")
	assert.Empty(t, cancelled)
	c.ok("run", "cancel", "abc")
	assert.Contains(t, <-cancelled, `"runId":"abc"`)
	c.ok("run", "cancel", "abc", "--force")
	assert.Contains(t, <-cancelled, `"force":true`)
}

// The events of the run have the traceparent; one that is none is a mistake in the command line.
func TestSend_Traceparent(t *testing.T) {
	c := onlineWith(t, engine.Config{Outbox: engine.OutboxConfig{Enabled: true}})
	nc := c.connect()
	events, err := nc.SubscribeSync(wire.EventSubject(wire.DefaultWorld, "*", "*"))
	require.NoError(t, err)
	require.NoError(t, nc.Flush())
	const parent = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01"
	made := c.handoff()
	got := c.pipe(made, "send", "-", "--traceparent", parent[1:])
	assert.Equal(t, exitUsage, got.status)
	assert.Contains(t, got.err, "--traceparent: "+parent[1:]+" is no W3C traceparent")
	assert.Equal(t, exitOK, c.pipe(made, "send", "-", "--expect", "executed", "--traceparent",
		parent).status)
	msg, err := events.NextMsg(time.Minute)
	require.NoError(t, err)
	assert.Equal(t, []string{parent}, msg.Header["traceparent"])
}

// Lists, watch and run get name the producer that began a run or appended an event. Its run is no
// signal and no handoff, whatever its events claim.
func TestRun_Appended(t *testing.T) {
	c := online(t)
	events := []runevents.Write{logtest.NewWrite(1), logtest.NewWrite(1)}
	for i, event := range []runevents.EventType{runevents.RunStarted, runevents.RunCompleted} {
		w := &events[i]
		w.EventID, w.EventType, w.StepID = uuid.NewString(), event, ""
		w.Payload = []byte(`{"status":"executed","reasonCode":"EXECUTED"}`)
		w.IdempotencyKey = runevents.IdempotencyKey(runevents.KeyFields{RunID: w.RunID,
			LogicalAttemptID: 1, EventType: w.EventType, PlanID: w.PlanID,
			PlanVersion: w.PlanVersion})
	}
	events[0].Payload = []byte(`{"command":"project advance fort wall","signal":"APPROVE",` +
		`"actorId":"ops","type":"PROJECT_ADVANCE"}`)
	_, err := c.world.Engine().Appends().Append(t.Context(), threatened, events)
	require.NoError(t, err)
	const said = "project advance fort wall (appended by anyone)"
	list := c.ok("run", "list")
	assert.Contains(t, list, said)
	watched := c.ok("watch", "--since", "1h", "--type", "RunStarted", "--count", "1")
	assert.Contains(t, watched, said)
	for _, forged := range []string{"APPROVE", "executed", "EXECUTED"} {
		assert.NotContains(t, list+watched, forged)
	}
	assert.NotContains(t, c.ok("run", "list", "--status", "executed"), said)
	assert.NotContains(t, c.ok("run", "list", "--type", "PROJECT_ADVANCE"), said)
	assert.Regexp(t, `(?m)^begun +not by the engine: appended by anyone$`,
		c.ok("run", "get", events[0].RunID))
}

// Of two handoffs with one handoffId, --hash says which; --town says it of two towns.
func TestApprovals_OneID(t *testing.T) {
	c := onlineWith(t, engine.Config{Settings: worldsettings.Settings{RequireApproval: "TOWNSFOLK_TALK"}})
	waiting := func() (list []client.Approval) {
		return decode[struct {
			Approvals []client.Approval `json:"approvals"`
		}](t, c.ok("approvals", "-o", "json")).Approvals
	}
	for _, reason := range []string{"the first", "the second"} {
		handoff := c.ok("new", threatened, "TOWNSFOLK_TALK", "casual")
		said := decode[map[string]any](t, handoff)
		said["proposal"].(map[string]any)["reason"] = reason
		require.Contains(t, c.pipe(marshal(t, said), "send", "-").out, "APPROVAL_REQUIRED")
	}
	rows := waiting()
	require.Len(t, rows, 2)
	id := rows[0].HandoffID
	require.Equal(t, id, rows[1].HandoffID)

	c.fails(exitUsage, "2 proposals that wait match "+id, "approve", id)
	assert.Equal(t, exitUsage, c.run("approve", id, "--town", threatened).status)
	c.fails(exitUsage, "no proposal that waits matches "+id, "approve", id, "--town", "elsewhere",
		"--hash", rows[1].HandoffHash[:8])
	assert.Contains(t, c.run("approve", id, "--town", "elsewhere").err, "UNKNOWN_APPROVAL")
	c.fails(exitUsage, "no proposal that waits matches handoff_", "approve", "handoff_",
		"--hash", "x")
	c.ok("reject", "handoff_", "--hash", rows[1].HandoffHash[:8], "--reason", "no")
	left := waiting()
	require.Len(t, left, 1)
	require.Equal(t, rows[0].HandoffHash, left[0].HandoffHash)
	c.fails(exitRefused, "APPROVAL_DIFFERS", "approve", id, "--town", threatened,
		"--hash", strings.Repeat("0", 64))
	c.ok("approve", id, "--hash", rows[0].HandoffHash)
}

// The words of an absent game or console end with one full stop before the remedy.
func TestText_Wait(t *testing.T) {
	t.Parallel()
	for said, want := range map[string]string{
		"No plugin is subscribed.": ": No plugin is subscribed. Start it.",
		"connection refused":       ": connection refused. Start it.",
	} {
		got, err := new(app).text("wait",
			&messages.AbsentPlugin{Attempt: 1, NextAt: "12:00", Said: said, Todo: "Start it."})
		require.NoError(t, err)
		require.Equal(t, "; attempt 1, the next request at 12:00"+want, string(got))
	}
}

// A retry names the new run, with its result as soon as there is one.
func TestText_Retried(t *testing.T) {
	t.Parallel()
	got := &client.Retried{Retried: messages.Retried{RunID: "new", RetryOf: "old"}}
	for _, want := range []string{"run new tries old again; it has no result yet\n", "executed EXECUTED, run new\n"} {
		text, err := new(app).text("retried", got)
		require.NoError(t, err)
		require.Equal(t, want, string(text))
		got.Result = &handoff.Result{Status: handoff.Executed, ReasonCode: handoff.ReasonExecuted}
	}
}
