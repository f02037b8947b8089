package main

import (
	"context"
	"encoding/json"
	"fmt"
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
	"worldengine/schemas"
	"worldengine/worldengine/apply"
	"worldengine/worldengine/failpoint"
	"worldengine/worldengine/fsck"
	"worldengine/worldengine/natstest"
	"worldengine/worldengine/wire"
)

// killAt names a file. When a handoffd process reaches the point that it says, and was there as
// often before as it says, since it says so, the process ends itself with SIGKILL.
const killAt = "HANDOFFD_TEST_KILL_AT"

func init() {
	where := os.Getenv(killAt)
	if where == "" {
		return
	}
	var times atomic.Int64
	failpoint.Reached = func(p failpoint.Point) {
		var point string
		var before int64
		if said, err := os.ReadFile(where); err == nil {
			_, _ = fmt.Sscan(string(said), &point, &before)
		}
		if string(p) == point && times.Add(1) > before {
			_ = syscall.Kill(os.Getpid(), syscall.SIGKILL)
			select {} // until the signal arrives
		}
	}
}

// killWhere has a server killed that was started with killAt and a file's name.
func killWhere(t testing.TB, where string, point failpoint.Point, before int) {
	t.Helper()
	require.NoError(t, os.WriteFile(where, fmt.Append(nil, point, " ", before), 0o600))
}

// mortal is a server that is killed at one point after another, and started again after each.
type mortal struct {
	*program
	t     *testing.T
	nc    *nats.Conn // to the server that runs
	args  []string
	where string // see killAt
}

func newMortal(t *testing.T, args ...string) *mortal {
	m := &mortal{t: t, args: args, where: filepath.Join(t.TempDir(), "where")}
	m.start()
	return m
}

func (m *mortal) start() {
	m.t.Helper()
	m.program = launch(m.t, []string{killAt + "=" + m.where}, m.args...)
	m.nc = m.program.connect()
}

// dies makes a request that brings the server to its end at a point, and starts it again.
func (m *mortal) dies(at failpoint.Point, verb wire.Verb, request []byte) {
	m.t.Helper()
	killWhere(m.t, m.where, at, 0)
	require.NoError(m.t, m.nc.PublishRequest(wire.Subject("main", verb), m.nc.NewInbox(), request))
	m.awaitPoint()
	m.nc.Close() // what it subscribed must not count as there
	require.NoError(m.t, os.Remove(m.where))
	m.start()
}

// pluginPoints are the points of a handoff that a plugin applies. Committed is of what the engine
// applies itself: see TestKillWhereTheRulesApply.
func pluginPoints() []failpoint.Point {
	return slices.DeleteFunc(failpoint.Points(),
		func(p failpoint.Point) bool { return p == failpoint.Committed })
}

// game is a game server whose plugin keeps to the protocol: it remembers what it applied. It
// refuses the first attempt, so that there are two.
type game struct {
	mu      sync.Mutex
	changes map[string]int // by applyId, how often the game was changed for it
	asked   map[string]int
	silent  string // a town whose commands get no answer
	// hosts are the subscriptions that play made; only the test's goroutine uses them.
	hosts []*nats.Subscription
}

func newGame() *game { return &game{changes: map[string]int{}, asked: map[string]int{}} }

// play hosts all towns on nc.
func play(t testing.TB, nc *nats.Conn, g *game) {
	t.Helper()
	sub, err := nc.Subscribe(wire.ApplySubject("main", "*"), func(msg *nats.Msg) {
		c, err := apply.ParseCommand(msg.Data, schemas.Limits{})
		if err != nil {
			t.Errorf("not a command-apply.v1: %v", err)
			return
		}
		g.mu.Lock()
		defer g.mu.Unlock()
		g.asked[c.ApplyID]++
		if c.TownID == g.silent {
			return
		}
		a := apply.Refuse(c, "CHUNK_NOT_LOADED", "Nobody is near.", true)
		if c.LogicalAttemptID > 1 {
			a = apply.Done(c)
			if g.changes[c.ApplyID] == 0 {
				g.changes[c.ApplyID]++
			}
		}
		if data, err := a.MarshalWire(); err == nil {
			_ = msg.Respond(data)
		}
	})
	require.NoError(t, err)
	require.NoError(t, nc.Flush())
	g.hosts = append(g.hosts, sub)
}

// playAlone is play for a game that has one server: it fails where another subscription is still
// there, which would get and answer each command a second time.
func playAlone(t testing.TB, nc *nats.Conn, g *game) {
	t.Helper()
	play(t, nc, g)
	g.hosts = slices.DeleteFunc(g.hosts, func(s *nats.Subscription) bool { return !s.IsValid() })
	require.Len(t, g.hosts, 1, "subscriptions of the game that get each command")
}

// leave ends the game on nc. When it returns, NATS has no subscription of it there, and the engine
// can no longer send a command to it.
func (g *game) leave(t testing.TB, nc *nats.Conn) {
	t.Helper()
	for _, s := range g.hosts {
		require.NoError(t, s.Unsubscribe())
	}
	g.hosts = nil
	require.NoError(t, nc.Flush())
	nc.Close()
}

// insist sends a handoff until it gets a result, over connections of its own: servers come and go.
func insist(t testing.TB, connect func() *nats.Conn, body []byte) *handoff.Result {
	t.Helper()
	return insistWithin(t, connect, body, time.Second)
}

// insistWithin is insist with a time for each request: where one has a minute, the result is that
// of the first request that the engine took.
func insistWithin(
	t testing.TB, connect func() *nats.Conn, body []byte, within time.Duration,
) *handoff.Result {
	t.Helper()
	for until := time.Now().Add(60 * time.Second); time.Now().Before(until); {
		reply, err := connect().Request(wire.Subject("main", "handoff"), body, within)
		if err != nil || reply.Header.Get("Nats-Service-Error-Code") == "503" {
			time.Sleep(20 * time.Millisecond) // between two tries, not for something to happen
			continue
		}
		result, err := handoff.ParseResult(reply.Data, schemas.Limits{})
		require.NoError(t, err, "%s", reply.Data)
		return result
	}
	t.Fatal("there is no result")
	return nil
}

// requireOnce checks that a handoff was executed and applied exactly once, and that the log, the
// result and the run's events agree about it. signals are the events that its run has behind its
// start.
func requireOnce(
	t testing.TB, nc *nats.Conn, g *game, body []byte, result *handoff.Result, signals ...string,
) {
	t.Helper()
	h, err := handoff.Parse(body, schemas.Limits{})
	require.NoError(t, err)
	ask := func(verb string, request string, v any) {
		t.Helper()
		reply, err := nc.Request(wire.Subject("main", verb), []byte(request), 10*time.Second)
		require.NoError(t, err)
		require.Empty(t, reply.Header.Get("Nats-Service-Error-Code"), "%s: %s", verb, reply.Data)
		require.NoError(t, json.Unmarshal(reply.Data, v))
	}
	var receipt struct {
		RunID  string
		Result struct{ ResultID, Status string }
	}
	ask("result.get", fmt.Sprintf(`{"idempotencyKey":%q}`, h.IdempotencyKey), &receipt)
	require.Equal(t, "executed", receipt.Result.Status)
	if result.Status == handoff.Duplicate {
		require.Equal(t, receipt.Result.ResultID, *result.Evaluation.DuplicateCheck.DuplicateOf)
	} else {
		require.Equal(t, receipt.Result.ResultID, result.ResultID)
	}
	var at struct {
		DecisionEpoch int64
		PendingRunID  string
	}
	ask("town.get", fmt.Sprintf(`{"townId":%q}`, h.Proposal.TownID), &at)
	require.Equal(t, h.DecisionEpoch+1, at.DecisionEpoch)
	require.Empty(t, at.PendingRunID)
	g.mu.Lock()
	require.Equal(t, 1, g.changes[h.HandoffID], "the game was changed once")
	g.mu.Unlock()

	var page struct{ Events []runevents.Record }
	ask("run.events", fmt.Sprintf(`{"runId":%q}`, receipt.RunID), &page)
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

var quickly = []string{"--apply", "plugin", "--plugin-backoff", "5ms", "--plugin-resend", "200ms"}

// A server that is killed at any point of applying a command by a plugin, and started again, has
// had it applied exactly once, whoever asks when.
func TestKillAtEveryPoint(t *testing.T) {
	t.Parallel()
	m, points := newMortal(t, served(t.TempDir())...), pluginPoints()
	g, h := newGame(), newHammer(t, len(points))
	h.create(m.nc)
	playAlone(t, m.nc, g)
	for i, point := range points {
		body := h.towns[i].next(t)
		m.dies(point, wire.Handoff, body)
		playAlone(t, m.nc, g)
		result := insist(t, func() *nats.Conn { return m.nc }, body)
		requireOnce(t, m.nc, g, body, result)
		requireSound(t, m.nc)
	}
}

// Where the rules apply a command, a kill leaves it applied or not begun.
func TestKillWhereTheRulesApply(t *testing.T) {
	t.Parallel()
	m, h := newMortal(t, "--listen", "127.0.0.1:0", "--data", t.TempDir()), newHammer(t, 2)
	h.create(m.nc)
	for i, c := range []struct {
		point failpoint.Point
		want  handoff.Status
	}{{failpoint.Judged, handoff.Executed}, {failpoint.Committed, handoff.Duplicate}} {
		body := h.towns[i].next(t)
		m.dies(c.point, wire.Handoff, body)
		result := insistWithin(t, func() *nats.Conn { return m.nc }, body, time.Minute)
		require.Equal(t, c.want, result.Status, c.point)
		requireSound(t, m.nc)
	}
}

// With two servers on one NATS, the one that stands by takes over, and goes on with the commands
// that the other had in hand.
func TestKillOneOfTwo(t *testing.T) {
	t.Parallel()
	nc, g := natstest.Connect(t), newGame()
	play(t, nc, g)
	join := append([]string{"--nats", nc.ConnectedUrl()}, quickly...)
	dir := t.TempDir()
	where := func(i int) string { return filepath.Join(dir, fmt.Sprint("where-", i)) }
	mortal := func(i int) *program { return spawn(t, []string{killAt + "=" + where(i)}, join...) }
	const atOnce = 4 // towns that are sent to, for each point
	points := pluginPoints()
	all := newHammer(t, atOnce*len(points))
	dying := mortal(0)
	dying.await("ready", time.Minute)
	for i, point := range points {
		next := mortal(i + 1)
		next.await("standby", time.Minute)
		killWhere(t, where(i), point, 0)
		all.sendOnce(nc, g, all.towns[i*atOnce:][:atOnce])
		dying.awaitPoint()
		requireSound(t, nc)
		dying = next
	}
}

// sendOnce makes towns, sends a handoff to each at once until it has its result, and checks that
// each was applied once.
func (h *hammer) sendOnce(nc *nats.Conn, g *game, towns []*driven) {
	h.t.Helper()
	const wait = 250 * time.Millisecond // for what a server took that was killed
	(&hammer{t: h.t, towns: towns}).create(nc)
	results := make([]*handoff.Result, len(towns))
	var sending sync.WaitGroup
	for i, d := range towns {
		d.open = d.next(h.t)
		sending.Go(func() {
			results[i] = insistWithin(h.t, func() *nats.Conn { return nc }, d.open, wait)
		})
	}
	sending.Wait()
	for i, d := range towns {
		requireOnce(h.t, nc, g, d.open, results[i])
	}
}

// requireSound checks with fsck that the log is whole.
func requireSound(t testing.TB, nc *nats.Conn) {
	t.Helper()
	report, err := fsck.Run(context.Background(), operator(t, nc), "main", fsck.Options{})
	require.NoError(t, err)
	require.Empty(t, report.Findings)
}
