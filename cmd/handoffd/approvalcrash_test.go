package main

import (
	"encoding/json"
	"fmt"
	"syscall"
	"testing"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/stretchr/testify/require"

	"worldengine/handoff"
	"worldengine/schemas"
	"worldengine/worldengine/failpoint"
	"worldengine/worldengine/town"
	"worldengine/worldengine/wire"
)

// approved are the flags of a server where a person approves everything.
var approved = []string{"--require-approval",
	"MAYOR_ACCEPT_MISSION,PROJECT_ADVANCE,SALVAGE_PLAN,TOWNSFOLK_TALK"}

type waitingApproval struct{ TownID, HandoffID, Status string }

func approvalsAt(t testing.TB, nc *nats.Conn) []waitingApproval {
	t.Helper()
	reply, err := nc.Request(wire.Subject("main", wire.ApprovalList), []byte(`{}`), 20*time.Second)
	require.NoError(t, err)
	var page struct{ Approvals []waitingApproval }
	require.NoError(t, json.Unmarshal(reply.Data, &page), "%s", reply.Data)
	return page.Approvals
}

// approve is a request to approve the proposal.
func (w *waitingApproval) approve(submit bool) []byte {
	return fmt.Appendf(nil, `{"handoffId":%q,"townId":%q,"decision":"approve","reason":"",`+
		`"submit":%t}`, w.HandoffID, w.TownID, submit)
}

// approve approves the only handoff that waits.
func approve(t testing.TB, nc *nats.Conn) {
	t.Helper()
	waiting := approvalsAt(t, nc)
	require.Len(t, waiting, 1)
	require.Equal(t, "waiting", waiting[0].Status)
	reply, err := nc.Request(wire.Subject("main", wire.ApprovalDecide),
		waiting[0].approve(false), 20*time.Second)
	require.NoError(t, err)
	require.Empty(t, reply.Header.Get(wire.ErrorCodeHeader), "%s", reply.Data)
}

// requireAsked sends a handoff that a person has to approve first.
func requireAsked(t testing.TB, nc *nats.Conn, body []byte) {
	t.Helper()
	result := insistWithin(t, func() *nats.Conn { return nc }, body, time.Minute)
	require.Equal(t, handoff.Rejected, result.Status)
	require.Equal(t, handoff.ReasonApprovalRequired, result.ReasonCode)
}

// approvedPoints are the points at which approved commands meet a kill: by default before the
// approval is used, when it is, and behind that; all of them with a -torture.kills above the default.
func approvedPoints() []failpoint.Point {
	if isLong() {
		return pluginPoints()
	}
	return []failpoint.Point{failpoint.Judged, failpoint.Accepted, failpoint.Concluded}
}

// A server that is killed when a proposal has come to wait for its approval, and again between the
// approval and the execution, has lost neither: the handoff waits once, and is executed once.
func TestKillBetweenAskingAndExecuting(t *testing.T) {
	t.Parallel()
	h := newHammer(t, 1)
	body := h.towns[0].next(t)
	m := newMortal(t, append([]string{"--listen", "127.0.0.1:0", "--data", t.TempDir()},
		approved...)...)
	h.create(m.nc)
	m.dies(failpoint.Committed, wire.Handoff, body)
	waiting := approvalsAt(t, m.nc)
	require.Len(t, waiting, 1)
	require.Equal(t, "waiting", waiting[0].Status)
	m.dies(failpoint.Committed, wire.ApprovalDecide, waiting[0].approve(true))
	waiting = approvalsAt(t, m.nc)
	require.Len(t, waiting, 1)
	require.Equal(t, "approved", waiting[0].Status)
	result := insistWithin(t, func() *nats.Conn { return m.nc }, body, time.Minute)
	require.Equal(t, handoff.Executed, result.Status)
	require.Empty(t, approvalsAt(t, m.nc))
	requireSound(t, m.nc)
}

// A server that is killed at any point of applying an approved command has it applied once, and the
// approval counts for nothing else.
func TestKillWhileApplyingApproved(t *testing.T) {
	t.Parallel()
	m, points := newMortal(t, served(t.TempDir(), approved...)...), approvedPoints()
	g, h := newGame(), newHammer(t, len(points))
	h.create(m.nc)
	playAlone(t, m.nc, g)
	for i, point := range points {
		d := h.towns[i]
		d.open = d.next(t)
		requireAsked(t, m.nc, d.open)
		approve(t, m.nc)
		m.dies(point, wire.Handoff, d.open)
		playAlone(t, m.nc, g)
		result := insist(t, func() *nats.Conn { return m.nc }, d.open)
		requireOnce(t, m.nc, g, d.open, result)
		require.Empty(t, approvalsAt(t, m.nc), point)
		next := d.after(t)
		requireAsked(t, m.nc, next)
		approve(t, m.nc)
		result = insist(t, func() *nats.Conn { return m.nc }, next)
		requireOnce(t, m.nc, g, next, result)
		requireSound(t, m.nc)
	}
}

// after returns a handoff of a town behind its open one, which was executed.
func (d *driven) after(t testing.TB) []byte {
	t.Helper()
	h, err := handoff.Parse(d.open, schemas.Limits{})
	require.NoError(t, err)
	state, reason := town.DefaultRules().Apply(d.state.Snapshot, &h.Proposal)
	require.Empty(t, reason)
	d.state = state
	return d.next(t)
}

// A question that has lapsed when the server is killed is asked again, and an approval that has
// lapsed executes nothing.
func TestKillWhileApprovalsLapse(t *testing.T) {
	t.Parallel()
	h := newHammer(t, 1)
	body := h.towns[0].next(t)
	m := newMortal(t, append([]string{"--listen", "127.0.0.1:0", "--data", t.TempDir()},
		approved...)...)
	lasting := m.args
	lapsing := append(lasting[:len(lasting):len(lasting)], "--approval-timeout", "1s")
	h.create(m.nc)
	again := func(args []string) {
		m.nc.Close()
		m.end(syscall.SIGKILL)
		m.args = args
		m.start()
	}
	asked, err := handoff.Parse(body, schemas.Limits{})
	require.NoError(t, err)
	lapsedOne := waitingApproval{TownID: asked.Proposal.TownID, HandoffID: asked.HandoffID}
	refused := func() {
		t.Helper()
		reply, err := m.nc.Request(wire.Subject("main", wire.ApprovalDecide),
			lapsedOne.approve(true), 20*time.Second)
		require.NoError(t, err)
		require.NotEmpty(t, reply.Header.Get(wire.ErrorCodeHeader), "%s", reply.Data)
	}
	lapsed := func() {
		t.Helper()
		require.Eventually(t, func() bool { return len(approvalsAt(t, m.nc)) == 0 }, time.Minute,
			50*time.Millisecond)
	}

	again(lapsing)
	m.args = lasting
	m.dies(failpoint.Committed, wire.Handoff, body)
	lapsed()
	refused()
	requireAsked(t, m.nc, body)
	waiting := approvalsAt(t, m.nc)
	require.Len(t, waiting, 1)

	again(lapsing)
	m.args = lasting
	m.dies(failpoint.Committed, wire.ApprovalDecide, waiting[0].approve(true))
	lapsed()
	refused()
	requireAsked(t, m.nc, body)
	approve(t, m.nc)
	result := insistWithin(t, func() *nats.Conn { return m.nc }, body, time.Minute)
	require.Equal(t, handoff.Executed, result.Status)
	requireSound(t, m.nc)
}

// A server that is killed at any point of the approved retry of a command has it applied once, and
// the approval counts until the retry is accepted.
func TestKillWhileRetryingApproved(t *testing.T) {
	t.Parallel()
	points := approvedPoints()
	h := newHammer(t, len(points))
	data, keys := unreachable(t, h)
	m, g := newMortal(t, append(served(data, approved...), "--discard-history")...), newGame()
	playAlone(t, m.nc, g)
	for i, point := range points {
		runID := runOfKey(t, m.nc, keys[i])
		requireFailed(t, m.nc, runID)
		reply, err := m.nc.Request(wire.Subject("main", wire.RunRetry),
			fmt.Appendf(nil, `{"runId":%q}`, runID), time.Minute)
		require.NoError(t, err)
		require.Contains(t, string(reply.Data), handoff.ReasonApprovalRequired)
		approve(t, m.nc)
		killWhileRetrying(t, m, g, point, keys[i], h.towns[i].open)
		require.Empty(t, approvalsAt(t, m.nc), point)
	}
}
