package main

import (
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/stretchr/testify/require"

	"worldengine/handoff"
	"worldengine/runevents"
	"worldengine/schemas"
	"worldengine/worldengine/apply"
	"worldengine/worldengine/failpoint"
	"worldengine/worldengine/natstest"
	"worldengine/worldengine/wire"
)

// killAt names a file with a point and a number. A handoffd process ends itself with SIGKILL when
// it reaches the point, after it was there so many times.
const killAt = "HANDOFFD_TEST_KILL_AT"

func init() {
	file := os.Getenv(killAt)
	if file == "" {
		return
	}
	var times atomic.Int64
	failpoint.Reached = func(p failpoint.Point) {
		var point string
		var before int64
		if text, err := os.ReadFile(file); err == nil {
			_, _ = fmt.Sscan(string(text), &point, &before)
		}
		if string(p) == point && times.Add(1) > before {
			_ = syscall.Kill(os.Getpid(), syscall.SIGKILL)
			select {} // until the signal arrives
		}
	}
}

// killWhen writes the file of killAt.
func killWhen(t testing.TB, file string, point failpoint.Point, before int) {
	t.Helper()
	require.NoError(t, os.WriteFile(file, fmt.Append(nil, point, " ", before), 0o600))
}

// mortal is a server that is killed at one point after another, and started again after each.
type mortal struct {
	*program
	t    *testing.T
	nc   *nats.Conn // to the server that runs
	args []string
	file string // see killAt
}

func newMortal(t *testing.T, args ...string) *mortal {
	m := &mortal{t: t, args: args, file: filepath.Join(t.TempDir(), "killAt")}
	m.start()
	return m
}

func (m *mortal) start() {
	m.t.Helper()
	m.program = launch(m.t, []string{killAt + "=" + m.file}, m.args...)
	m.nc = m.connect()
}

// restart kills the server at any moment, and starts it with other arguments.
func (m *mortal) restart(args ...string) {
	m.t.Helper()
	m.nc.Close()
	m.end(syscall.SIGKILL)
	m.args = args
	m.start()
}

// request makes a request without waiting for an answer.
func (m *mortal) request(verb wire.Verb, body []byte) {
	m.t.Helper()
	require.NoError(m.t, m.nc.PublishRequest(wire.Subject(wire.DefaultWorld, verb),
		m.nc.NewInbox(), body))
}

// dies makes a request that brings the server to its end at a point, and starts it again.
func (m *mortal) dies(at failpoint.Point, verb wire.Verb, request []byte) {
	m.t.Helper()
	killWhen(m.t, m.file, at, 0)
	m.request(verb, request)
	m.ends()
	m.nc.Close() // its subscriptions must not count as there
	require.NoError(m.t, os.Remove(m.file))
	m.start()
}

// pluginPoints are the points of a handoff that a plugin applies. Committed is for the rules.
func pluginPoints() []failpoint.Point {
	return slices.DeleteFunc(failpoint.Points(),
		func(p failpoint.Point) bool { return p == failpoint.Committed })
}

// approvedPoints are the points at which approved commands meet a kill: before the approval is
// used, when it is, and behind that; all of them with a -torture.kills above the default.
func approvedPoints() []failpoint.Point {
	if isLong() {
		return pluginPoints()
	}
	return []failpoint.Point{failpoint.Judged, failpoint.Accepted, failpoint.Concluded}
}

// quickly are flags of a server whose plugins are asked in quick succession.
var quickly = []string{"--apply", "plugin", "--plugin-backoff", "5ms", "--plugin-resend", "200ms"}

// played are the arguments of a server of a data directory with a game.
func played(data string, more ...string) []string {
	return onData(data, slices.Concat([]string{"--sync", "interval"}, quickly, more)...)
}

// insist sends a handoff until it gets a result, and asks again within a time: with a minute, the
// result is the one of the first request that the engine took.
func insist(t testing.TB, nc *nats.Conn, body []byte, within time.Duration) (r *handoff.Result) {
	t.Helper()
	eventually(t, time.Minute, "there is a result", func(ctx context.Context) error {
		reply, err := nc.Request(wire.Subject(wire.DefaultWorld, wire.Handoff), body, within)
		if err != nil {
			return err
		}
		if reply.Header.Get(wire.ErrorCodeHeader) == "503" {
			return fmt.Errorf("%s", reply.Data)
		}
		r, err = handoff.ParseResult(reply.Data, schemas.Limits{})
		require.NoError(t, err, "%s", reply.Data)
		return nil
	})
	return r
}

// requireOnce checks that a handoff was executed and applied exactly once, and that the log, the
// result and the run's events agree about it. signals are the events that its run has behind its
// start.
func requireOnce(
	t testing.TB, nc *nats.Conn, g *game, body []byte, result *handoff.Result, signals ...string,
) {
	t.Helper()
	h := parsed(body)
	kept := receiptOf(t, nc, h.IdempotencyKey)
	var first struct{ ResultID, Status string }
	require.NoError(t, json.Unmarshal(kept.Result, &first))
	require.Equal(t, "executed", first.Status)
	if result.Status == handoff.Duplicate {
		require.Equal(t, first.ResultID, *result.Evaluation.DuplicateCheck.DuplicateOf)
	} else {
		require.Equal(t, first.ResultID, result.ResultID)
	}
	at := townOf(t, nc, h.Proposal.TownID)
	require.Equal(t, h.DecisionEpoch+1, at.DecisionEpoch)
	require.Empty(t, at.PendingRunID)
	g.mu.Lock()
	require.Equal(t, 1, g.changes[h.HandoffID], "the game was changed once")
	g.mu.Unlock()

	page := ask[struct{ Events []runevents.Record }](t, nc, wire.RunEvents,
		members{"runId": kept.RunID})
	var story []string
	for i, e := range page.Events {
		require.Equal(t, int64(i+1), e.RunSeq)
		if e.EventType == runevents.RunQueued || e.EventType == runevents.RunApproved {
			continue // it waited for a moment, behind the town's put, or for a person
		}
		if e.StepID == "apply" || e.StepID == "" {
			story = append(story, fmt.Sprint(e.EventType, " ", e.LogicalAttemptID))
		}
	}
	require.Equal(t, slices.Concat([]string{"RunStarted 1"}, signals, []string{
		"StepStarted 1", "StepFailed 1", "StepStarted 2", "StepCompleted 2", "RunCompleted 1",
	}), story)
}

// A server that is killed at any point of applying a command by a plugin, and started again, has
// had it applied exactly once, whoever asks when. An approval counts for nothing else.
func TestKill_Plugin(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		flags  []string
		points []failpoint.Point
		before func(t testing.TB, nc *nats.Conn, body []byte)
	}{
		"":         {nil, pluginPoints(), func(testing.TB, *nats.Conn, []byte) {}},
		"approved": {approved, approvedPoints(), approveFirst},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			m := newMortal(t, played(t.TempDir(), c.flags...)...)
			g, h := newGame(), newHammer(t, len(c.points))
			h.create(m.nc)
			g.playAlone(t, m.nc)
			for i, point := range c.points {
				d := h.towns[i]
				body := d.next()
				c.before(t, m.nc, body)
				m.dies(point, wire.Handoff, body)
				g.playAlone(t, m.nc)
				requireOnce(t, m.nc, g, body, insist(t, m.nc, body, time.Second))
				d.state = d.after(body)
				body = d.next()
				c.before(t, m.nc, body)
				requireOnce(t, m.nc, g, body, insist(t, m.nc, body, time.Second))
				requireSound(t, m.nc)
			}
		})
	}
}

// If the rules apply a command, a kill leaves it applied or not begun.
func TestKill_Rules(t *testing.T) {
	t.Parallel()
	m, h := newMortal(t, onData(t.TempDir())...), newHammer(t, 2)
	h.create(m.nc)
	for i, c := range []struct {
		point failpoint.Point
		want  handoff.Status
	}{{failpoint.Judged, handoff.Executed}, {failpoint.Committed, handoff.Duplicate}} {
		body := h.towns[i].next()
		m.dies(c.point, wire.Handoff, body)
		require.Equal(t, c.want, insist(t, m.nc, body, time.Minute).Status, c.point)
		requireSound(t, m.nc)
	}
}

// With two servers on one NATS, the one that stands by takes over, and goes on with the commands
// that the other had in hand.
func TestKill_OneOfTwo(t *testing.T) {
	t.Parallel()
	nc, g := natstest.Connect(t), newGame()
	g.play(t, nc)
	dir := t.TempDir()
	file := func(i int) string { return filepath.Join(dir, fmt.Sprint("killAt-", i)) }
	start := func(i int, state string) *program {
		p := spawn(t, []string{killAt + "=" + file(i)},
			append([]string{"--nats", nc.ConnectedUrl()}, quickly...)...)
		p.await(state)
		return p
	}
	const atOnce = 4 // towns that are sent to, for each point
	points := pluginPoints()
	all := newHammer(t, atOnce*len(points))
	dying := start(0, "ready")
	all.create(nc)
	for i, point := range points {
		next := start(i+1, "standby")
		killWhen(t, file(i), point, 0)
		towns, results := all.towns[i*atOnce:][:atOnce], make([]*handoff.Result, atOnce)
		var sending sync.WaitGroup
		for i, d := range towns {
			d.open = d.next()
			sending.Go(func() { results[i] = insist(t, nc, d.open, 250*time.Millisecond) })
		}
		sending.Wait()
		for i, d := range towns {
			requireOnce(t, nc, g, d.open, results[i])
		}
		dying.ends()
		requireSound(t, nc)
		dying = next
	}
}

// A server that is killed at any point of a retry has begun it or not. Begun, the next server ends
// it; else the operator's next request does. Either way the command is applied once, and an
// approval counts until the retry is accepted.
func TestKill_Retry(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		flags  []string
		points []failpoint.Point
	}{"": {nil, pluginPoints()}, "approved": {approved, approvedPoints()}} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			h := newHammer(t, len(c.points))
			data, keys := unreachable(t, h)
			m := newMortal(t, played(data, append(c.flags, "--discard-history")...)...)
			g := newGame()
			g.playAlone(t, m.nc)
			for i, point := range c.points {
				runID := receiptOf(t, m.nc, keys[i]).RunID
				require.Equal(t, "FAILED", statusOf(t, m.nc, runID))
				retry := fmt.Appendf(nil, `{"runId":%q}`, runID)
				if c.flags != nil {
					require.Contains(t, string(ask[json.RawMessage](t, m.nc, wire.RunRetry, retry)),
						handoff.ReasonApprovalRequired)
					approve(t, m.nc)
				}
				m.dies(point, wire.RunRetry, retry)
				g.playAlone(t, m.nc)
				require.Equal(t, "FAILED", statusOf(t, m.nc, runID))
				want := ""
				if point != failpoint.Judged {
					want = "RUN_RETRIED"
				}
				require.Equal(t, want, errorOf(t, m.nc, wire.RunRetry, retry), point)
				require.Eventually(t, func() bool {
					return receiptOf(t, m.nc, keys[i]).RunID != runID
				}, time.Minute, 10*time.Millisecond, "%s: the key has no other run", point)
				body := h.towns[i].open
				again := insist(t, m.nc, body, time.Second)
				require.Equal(t, handoff.Duplicate, again.Status, point)
				requireOnce(t, m.nc, g, body, again, "SignalAccepted 1")
				require.Empty(t, approvalsAt(t, m.nc), point)
				requireSound(t, m.nc)
			}
		})
	}
}

// unreachable makes a data directory with a handoff for each town that failed because no plugin
// was there, and returns their keys.
func unreachable(t *testing.T, h *hammer) (data string, keys []string) {
	t.Helper()
	for _, d := range h.towns {
		d.open = d.next()
	}
	// A busy machine that takes longer than an attempt fails them otherwise.
	natstest.Patiently(t, time.Second, func(deadline time.Duration) (wrong string) {
		data, keys = t.TempDir(), make([]string, len(h.towns))
		p := launch(t, nil, played(data, "--plugin-attempts", "1", "--plugin-deadline",
			deadline.String(), "--plugin-resend", deadline.String(), "--plugin-absent", "fail")...)
		nc := p.connect()
		h.create(nc)
		var sending sync.WaitGroup
		results := make([]*handoff.Result, len(h.towns))
		for i, d := range h.towns {
			sending.Go(func() { results[i] = insist(t, nc, d.open, deadline+time.Minute) })
		}
		sending.Wait()
		for i, r := range results {
			if keys[i] = r.IdempotencyKey; r.ReasonCode != apply.ReasonPluginUnavailable {
				wrong = "one ended with " + string(r.ReasonCode)
			}
		}
		p.end(syscall.SIGTERM)
		return wrong
	})
	return data, keys
}

func statusOf(t testing.TB, nc *nats.Conn, runID string) string {
	t.Helper()
	return ask[struct{ Status string }](t, nc, wire.RunGet, members{"runId": runID}).Status
}

// A server that is killed at any point of cancelling a command that no game has leaves the command
// pending or the run cancelled; the operator's next request ends it, and the key is free. A run that
// was cancelled by force is alerted about, even if the server is killed right behind.
func TestKill_Cancel(t *testing.T) {
	t.Parallel()
	type cancel struct {
		at    failpoint.Point
		force bool
	}
	cancels := []cancel{{failpoint.Withdrawn, true}}
	for _, point := range failpoint.Cancelling() {
		cancels = append(cancels, cancel{point, false})
	}
	m := newMortal(t, played(t.TempDir(), "--plugin-absent", "wait")...)
	g, h := newGame(), newHammer(t, len(cancels))
	h.create(m.nc)
	forced := map[string]int{}
	for i, c := range cancels {
		body := h.towns[i].next()
		m.request(wire.Handoff, body)
		runID := m.pendingRun(h.towns[i].id)
		m.dies(c.at, wire.RunCancel, fmt.Appendf(nil, `{"runId":%q,"force":%t}`, runID, c.force))

		want := ""
		if c.at == failpoint.Withdrawn {
			want = "RUN_NOT_WAITING"
		}
		require.Equal(t, want, errorOf(t, m.nc, wire.RunCancel,
			fmt.Appendf(nil, `{"runId":%q,"force":true}`, runID)), c.at)
		require.Eventually(t, func() bool {
			return statusOf(t, m.nc, runID) == "CANCELLED"
		}, 30*time.Second, 10*time.Millisecond)
		if c.force || want == "" {
			forced[runID] = 1
		}
		require.Eventually(t, func() bool {
			return maps.Equal(forced, alertedRuns(t, m.nc, runevents.ApplyInDoubt))
		}, 30*time.Second, 10*time.Millisecond, c.at)
		game := m.connect() // which is gone before the next handoff
		g.playAlone(t, game)
		requireOnce(t, m.nc, g, body, insist(t, m.nc, body, time.Second))
		g.leave(t, game)
		requireSound(t, m.nc)
	}
}

// pendingRun returns the run whose command is pending in a town, once there is one.
func (m *mortal) pendingRun(townID string) (runID string) {
	m.t.Helper()
	require.Eventually(m.t, func() bool {
		runID = townOf(m.t, m.nc, townID).PendingRunID
		return runID != ""
	}, 30*time.Second, 10*time.Millisecond)
	return runID
}

// alertedRuns returns how often the alerts of a code name which run.
func alertedRuns(t testing.TB, nc *nats.Conn, code runevents.AlertCode) map[string]int {
	t.Helper()
	page := ask[struct {
		Alerts []struct {
			Code  runevents.AlertCode
			RunID string
		}
	}](t, nc, wire.AlertList, members{})
	found := map[string]int{}
	for _, a := range page.Alerts {
		if a.Code == code {
			found[a.RunID]++
		}
	}
	return found
}

// approved are the flags of a server at which a person approves everything.
var approved = []string{"--require-approval",
	"MAYOR_ACCEPT_MISSION,PROJECT_ADVANCE,SALVAGE_PLAN,TOWNSFOLK_TALK"}

type waitingApproval struct{ TownID, HandoffID, Status string }

func approvalsAt(t testing.TB, nc *nats.Conn) []waitingApproval {
	t.Helper()
	return ask[struct{ Approvals []waitingApproval }](t, nc, wire.ApprovalList, members{}).Approvals
}

// onlyApproval returns the only approval, which must have a status.
func onlyApproval(t testing.TB, nc *nats.Conn, status string) waitingApproval {
	t.Helper()
	waiting := approvalsAt(t, nc)
	require.Len(t, waiting, 1)
	require.Equal(t, status, waiting[0].Status)
	return waiting[0]
}

// decision is a request to approve the proposal.
func (w *waitingApproval) decision(submit bool) []byte {
	return fmt.Appendf(nil, `{"handoffId":%q,"townId":%q,"decision":"approve","reason":"",`+
		`"submit":%t}`, w.HandoffID, w.TownID, submit)
}

// approve approves the only handoff that waits.
func approve(t testing.TB, nc *nats.Conn) {
	t.Helper()
	waiting := onlyApproval(t, nc, "waiting")
	ask[struct{}](t, nc, wire.ApprovalDecide, waiting.decision(false))
}

// requireAsked sends a handoff that a person has to approve first.
func requireAsked(t testing.TB, nc *nats.Conn, body []byte) {
	t.Helper()
	require.Equal(t, handoff.ReasonApprovalRequired, insist(t, nc, body, time.Minute).ReasonCode)
}

// approveFirst has a handoff approved before it is executed, when no other waits.
func approveFirst(t testing.TB, nc *nats.Conn, body []byte) {
	t.Helper()
	requireAsked(t, nc, body)
	approve(t, nc)
}

// A server that is killed when a proposal has come to wait for its approval, and again between the
// approval and the execution, has lost neither: the handoff waits once, and is executed once.
func TestKill_Approval(t *testing.T) {
	t.Parallel()
	h := newHammer(t, 1)
	body := h.towns[0].next()
	m := newMortal(t, onData(t.TempDir(), approved...)...)
	h.create(m.nc)
	m.dies(failpoint.Committed, wire.Handoff, body)
	waiting := onlyApproval(t, m.nc, "waiting")
	m.dies(failpoint.Committed, wire.ApprovalDecide, waiting.decision(true))
	onlyApproval(t, m.nc, "approved")
	require.Equal(t, handoff.Executed, insist(t, m.nc, body, time.Minute).Status)
	require.Empty(t, approvalsAt(t, m.nc))
	requireSound(t, m.nc)
}

// A question that has lapsed when the server is killed is asked again, and an approval that has
// lapsed executes nothing.
func TestKill_ApprovalLapses(t *testing.T) {
	t.Parallel()
	h := newHammer(t, 1)
	body := h.towns[0].next()
	lasting := onData(t.TempDir(), approved...)
	lapsing := append(slices.Clip(lasting), "--approval-timeout", "1s")
	m := newMortal(t, lasting...)
	h.create(m.nc)
	asked := parsed(body)
	waiting := waitingApproval{TownID: asked.Proposal.TownID, HandoffID: asked.HandoffID}
	for _, lapses := range []struct {
		verb    wire.Verb
		request []byte
	}{{wire.Handoff, body}, {wire.ApprovalDecide, waiting.decision(true)}} {
		m.restart(lapsing...)
		m.args = lasting
		m.dies(failpoint.Committed, lapses.verb, lapses.request)
		require.Eventually(t, func() bool { return len(approvalsAt(t, m.nc)) == 0 }, time.Minute,
			50*time.Millisecond)
		require.NotEmpty(t, errorOf(t, m.nc, wire.ApprovalDecide, waiting.decision(true)))
		requireAsked(t, m.nc, body)
		onlyApproval(t, m.nc, "waiting")
	}
	approve(t, m.nc)
	require.Equal(t, handoff.Executed, insist(t, m.nc, body, time.Minute).Status)
	requireSound(t, m.nc)
}

// A server that is killed, or serves without a projector, leaves nothing that the next projector
// misses, and each alert is raised once.
func TestKill_Projector(t *testing.T) {
	t.Parallel()
	args := onData(t.TempDir(), "--sync", "interval")
	want := map[string]int{}
	for i, more := range [][]string{nil, {"--no-projector"}, nil} {
		p := launch(t, nil, append(slices.Clip(args), more...)...)
		nc, run := p.connect(), "run-"+strconv.Itoa(i)
		ask[struct{}](t, nc, wire.RunAppend, appended(t, run, runevents.RunCompleted))
		if want[run] = 1; more == nil {
			require.Eventually(t, func() bool {
				return maps.Equal(want, alertedRuns(t, nc, runevents.InvalidTransition))
			}, time.Minute, 10*time.Millisecond)
		}
		if i == 2 {
			requireSound(t, nc)
		}
		p.end(syscall.SIGKILL)
	}
}

// A server that is killed while a command is on its way to the console cannot know whether it was
// run: whoever serves the world next says so, and does not run it again.
func TestKill_ConsoleInDoubt(t *testing.T) {
	t.Parallel()
	answers := make(chan string, 8)
	address, commands := console(t, answers)
	m := newMortal(t, onData(t.TempDir(), "--apply", "rcon",
		"--rcon-config", rconConfig(t, address, "say {argument}"),
		"--plugin-deadline", "3s", "--plugin-resend", "100ms")...)
	h := newHammer(t, 1)
	h.create(m.nc)
	d := h.towns[0]
	body := d.next()
	m.request(wire.Handoff, body)
	require.Equal(t, "say casual", <-commands)
	m.end(syscall.SIGKILL)
	answers <- "" // to nobody

	m.start()
	asked := parsed(body)
	key := fmt.Appendf(nil, `{"idempotencyKey":%q}`, asked.IdempotencyKey)
	require.Eventually(t, func() bool {
		return errorOf(t, m.nc, wire.ResultGet, key) == ""
	}, 30*time.Second, 50*time.Millisecond)
	require.Contains(t, string(receiptOf(t, m.nc, asked.IdempotencyKey).Result),
		`"reasonCode":"RCON_IN_DOUBT"`)
	require.Equal(t, d.state.Hash, townOf(t, m.nc, d.id).SnapshotHash, "the town is as it was")

	answers <- ""
	other := talk(d.id, d.state.Hash, d.state.Epoch(), 0.25)
	require.Equal(t, handoff.Executed, insist(t, m.nc, other, 30*time.Second).Status)
	require.Equal(t, "say casual", <-commands, "nothing was sent in between")
	require.Empty(t, commands)
	m.stop()
	require.Contains(t, m.stderr.String(), "APPLY_IN_DOUBT")
}
