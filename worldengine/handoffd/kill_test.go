package handoffd

import (
	"encoding/json"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/stretchr/testify/require"

	"worldengine/handoff"
	"worldengine/runevents"
	"worldengine/worldengine/internal/core/apply"
	"worldengine/worldengine/internal/kit/failpoint"
	"worldengine/worldengine/internal/testkit/natstest"
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
	return &mortal{t: t, args: args, file: filepath.Join(t.TempDir(), "killAt")}
}

// start starts the server, with more arguments than usual.
func (m *mortal) start(env []string, more ...string) {
	m.t.Helper()
	if m.nc != nil {
		m.nc.Close() // its subscriptions must not count as there
	}
	m.program = launch(m.t, append(env, killAt+"="+m.file), slices.Concat(m.args, more)...)
	m.nc = m.connect()
}

// data is the data directory, or "" if the server joins a NATS.
func (m *mortal) data() string {
	if m.args[0] == "--nats" {
		return ""
	}
	return m.args[3]
}

// stop ends the server in order.
func (m *mortal) stop() {
	m.t.Helper()
	m.nc.Close()
	m.program.stop()
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
	m.end(itself)
	require.NoError(m.t, os.Remove(m.file))
	m.start(nil)
}

// pluginPoints are the points of a handoff that a plugin applies. Committed is for the rules.
func pluginPoints() []failpoint.Point {
	return slices.DeleteFunc(failpoint.Points(),
		func(p failpoint.Point) bool { return p == failpoint.Committed })
}

// samplePoints are three of the plugin's points: before the command is begun, when it is, and behind
// that. With a -torture.kills above the default they are all of them.
func samplePoints() []failpoint.Point {
	if isLong() {
		return pluginPoints()
	}
	return []failpoint.Point{failpoint.Judged, failpoint.Accepted, failpoint.Concluded}
}

// quickly are flags of a server whose plugins are asked in quick succession.
var quickly = []string{"--apply", "plugin", "--plugin-backoff", "5ms", "--plugin-resend", "200ms"}

// played are the arguments of a server of a data directory with a game.
func played(data string, more ...string) []string {
	return dataArgs(data, slices.Concat([]string{"--sync", "interval"}, quickly, more)...)
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
		"approved": {approved, samplePoints(), approveFirst},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			m := newMortal(t, played(t.TempDir(), c.flags...)...)
			m.start(nil)
			g, h := newGame(), newHammer(t, len(c.points), "")
			h.create(m.nc)
			g.play(t, m.nc)
			for i, point := range c.points {
				d := h.towns[i]
				for _, dies := range []bool{true, false} {
					body := d.talk().body
					c.before(t, m.nc, body)
					if dies {
						m.dies(point, wire.Handoff, body)
						g.play(t, m.nc)
					}
					requireOnce(t, m.nc, g, body, insist(t, m.nc, body, time.Second))
					d.state = d.applied(body)
				}
				requireSound(t, m.nc)
			}
		})
	}
}

// If the rules apply a command, a kill leaves it applied or not begun.
func TestKill_Rules(t *testing.T) {
	t.Parallel()
	m, h := newMortal(t, dataArgs(t.TempDir())...), newHammer(t, 2, "")
	m.start(nil)
	h.create(m.nc)
	for i, c := range []struct {
		point failpoint.Point
		want  handoff.Status
	}{{failpoint.Judged, handoff.Executed}, {failpoint.Committed, handoff.Duplicate}} {
		body := h.towns[i].talk().body
		m.dies(c.point, wire.Handoff, body)
		require.Equal(t, c.want, insist(t, m.nc, body, time.Minute).Status, c.point)
		requireSound(t, m.nc)
	}
}

// With two servers on one NATS, the one that stands by takes over, and goes on with the commands
// that the other had in hand.
func TestKill_OneOfTwo(t *testing.T) {
	t.Parallel()
	for _, point := range samplePoints() {
		t.Run(string(point), func(t *testing.T) {
			t.Parallel()
			nc, g, h := natstest.Connect(t), newGame(), newHammer(t, 4, "")
			g.play(t, nc)
			file := filepath.Join(t.TempDir(), "killAt")
			args := append([]string{"--nats", nc.ConnectedUrl()}, quickly...)
			dying := launch(t, []string{killAt + "=" + file}, args...)
			h.create(nc)
			spawn(t, nil, args...).await("standby")
			killWhen(t, file, point, 0)
			var sending sync.WaitGroup
			for _, d := range h.towns {
				sending.Go(func() {
					body := d.talk().body
					requireOnce(t, nc, g, body, insist(t, nc, body, 250*time.Millisecond))
				})
			}
			sending.Wait()
			dying.end(itself)
			requireSound(t, nc)
		})
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
	}{"": {nil, samplePoints()}, "approved": {approved, samplePoints()}} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			data, failed := unreachable(t, len(c.points))
			m := newMortal(t, played(data, append(c.flags, "--discard-history")...)...)
			m.start(nil)
			g := newGame()
			g.play(t, m.nc)
			for i, point := range c.points {
				body := failed[i]
				key := parsed(body).IdempotencyKey
				runID := receiptOf(t, m.nc, key).RunID
				require.Equal(t, "FAILED", statusOf(t, m.nc, runID))
				retry := fmt.Appendf(nil, `{"runId":%q}`, runID)
				if c.flags != nil {
					require.Contains(t, string(ask[json.RawMessage](t, m.nc, wire.RunRetry, retry)),
						handoff.ReasonApprovalRequired)
					approve(t, m.nc)
				}
				m.dies(point, wire.RunRetry, retry)
				g.play(t, m.nc)
				require.Equal(t, "FAILED", statusOf(t, m.nc, runID))
				want := ""
				if point != failpoint.Judged {
					want = "RUN_RETRIED"
				}
				require.Equal(t, want, errorOf(t, m.nc, wire.RunRetry, retry), point)
				require.Eventually(t, func() bool {
					return receiptOf(t, m.nc, key).RunID != runID
				}, time.Minute, 10*time.Millisecond, "%s: the key has no other run", point)
				again := insist(t, m.nc, body, time.Second)
				require.Equal(t, handoff.Duplicate, again.Status, point)
				requireOnce(t, m.nc, g, body, again, "SignalAccepted 1")
				require.Empty(t, approvalsAt(t, m.nc), point)
				requireSound(t, m.nc)
			}
		})
	}
}

// unreachable makes a data directory with handoffs, of a town each, that failed because no plugin was
// there.
func unreachable(t *testing.T, towns int) (data string, failed [][]byte) {
	t.Helper()
	// A busy machine that takes longer than an attempt fails them otherwise.
	natstest.Patiently(t, time.Second, func(deadline time.Duration) (wrong string) {
		data, failed = t.TempDir(), make([][]byte, towns)
		p := launch(t, nil, played(data, "--plugin-attempts", "1", "--plugin-deadline",
			deadline.String(), "--plugin-resend", deadline.String(), "--plugin-absent", "fail")...)
		nc, h := p.connect(), newHammer(t, towns, "")
		h.create(nc)
		var sending sync.WaitGroup
		reasons := make([]handoff.ReasonCode, towns)
		for i, d := range h.towns {
			failed[i] = d.talk().body
			sending.Go(func() { reasons[i] = insist(t, nc, failed[i], deadline+time.Minute).ReasonCode })
		}
		sending.Wait()
		for _, reason := range reasons {
			if reason != apply.ReasonGameUnavailable {
				wrong = "one ended with " + string(reason)
			}
		}
		p.end(syscall.SIGTERM)
		return wrong
	})
	return data, failed
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
	points := append([]failpoint.Point{failpoint.Cancelled}, failpoint.Cancelling()...)
	// A request that is sent again, since NATS has not said in time that there is no game, counts as arrived.
	m := newMortal(t, played(t.TempDir(), "--plugin-absent", "wait", "--plugin-resend", "1m")...)
	m.start(nil)
	g, h := newGame(), newHammer(t, len(points), "")
	h.create(m.nc)
	forced := map[string]int{}
	for i, point := range points {
		body, force := h.towns[i].talk().body, i == 0
		m.request(wire.Handoff, body)
		runID := pendingRun(t, m.nc, h.towns[i].id)
		m.dies(point, wire.RunCancel, fmt.Appendf(nil, `{"runId":%q,"force":%t}`, runID, force))

		want := ""
		if point == failpoint.Cancelled {
			want = "RUN_NOT_WAITING"
		}
		require.Equal(t, want, errorOf(t, m.nc, wire.RunCancel,
			fmt.Appendf(nil, `{"runId":%q,"force":true}`, runID)), point)
		if force || want == "" {
			forced[runID] = 1
		}
		require.Eventually(t, func() bool {
			return statusOf(t, m.nc, runID) == "CANCELLED" && maps.Equal(forced, doubtAlerts(t, m.nc))
		}, time.Minute, 10*time.Millisecond, point)
		game := m.connect() // which is gone before the next handoff
		g.play(t, game)
		requireOnce(t, m.nc, g, body, insist(t, m.nc, body, time.Second))
		g.leave(t, game)
		requireSound(t, m.nc)
	}
}

// pendingRun returns the run whose command is pending in a town, once there is one.
func pendingRun(t testing.TB, nc *nats.Conn, townID string) (runID string) {
	t.Helper()
	require.Eventually(t, func() bool {
		runID = townOf(t, nc, townID).PendingRunID
		return runID != ""
	}, time.Minute, 10*time.Millisecond)
	return runID
}

// doubtAlerts returns how often the alerts of that name which run.
func doubtAlerts(t testing.TB, nc *nats.Conn) map[string]int {
	t.Helper()
	type alert struct{ Code, RunID string }
	found := map[string]int{}
	for _, a := range ask[struct{ Alerts []alert }](t, nc, wire.AlertList, members{}).Alerts {
		if a.Code == string(runevents.ApplyInDoubt) {
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

// approveFirst has a handoff approved before it is executed, when no other waits.
func approveFirst(t testing.TB, nc *nats.Conn, body []byte) {
	t.Helper()
	require.Equal(t, handoff.ReasonApprovalRequired, insist(t, nc, body, time.Minute).ReasonCode)
	approve(t, nc)
}

// A server that is killed when a proposal has come to wait for its approval, and again between the
// approval and the execution, has lost neither: the handoff waits once, and is executed once.
func TestKill_Approval(t *testing.T) {
	t.Parallel()
	m, h := newMortal(t, dataArgs(t.TempDir(), approved...)...), newHammer(t, 1, "")
	m.start(nil)
	h.create(m.nc)
	body := h.towns[0].talk().body
	m.dies(failpoint.Committed, wire.Handoff, body)
	waiting := onlyApproval(t, m.nc, "waiting")
	m.dies(failpoint.Committed, wire.ApprovalDecide, waiting.decision(true))
	onlyApproval(t, m.nc, "approved")
	require.Equal(t, handoff.Executed, insist(t, m.nc, body, time.Minute).Status)
	require.Empty(t, approvalsAt(t, m.nc))
	requireSound(t, m.nc)
}
