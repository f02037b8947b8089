package main

import (
	"context"
	"encoding/json"
	"fmt"
	"os"
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
	"worldengine/worldengine/fsck"
	"worldengine/worldengine/natstest"
	"worldengine/worldengine/wire"
)

// killAt makes a handoffd process end itself with SIGKILL when it reaches a point, the first time
// or, with killAfter, after it was there so often.
const (
	killAt    = "HANDOFFD_TEST_KILL_AT"
	killAfter = "HANDOFFD_TEST_KILL_AFTER"
)

func init() {
	if point := failpoint.Point(os.Getenv(killAt)); point != "" {
		after, _ := strconv.ParseInt(os.Getenv(killAfter), 10, 64) // 0 where it is not set
		var times atomic.Int64
		failpoint.Reached = func(p failpoint.Point) {
			if p == point && times.Add(1) > after {
				_ = syscall.Kill(os.Getpid(), syscall.SIGKILL)
				select {} // until the signal arrives
			}
		}
	}
}

// game is a game server whose plugin keeps to the protocol: it remembers what it applied. It
// refuses the first attempt, so that there are two.
type game struct {
	mu      sync.Mutex
	changes map[string]int // by applyId, how often the game was changed for it
	asked   map[string]int
	silent  string // a town whose commands get no answer
}

// play hosts all towns on nc.
func play(t testing.TB, nc *nats.Conn, g *game) {
	t.Helper()
	_, err := nc.Subscribe(wire.ApplySubject("main", "*"), func(msg *nats.Msg) {
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
// receipt and the run's events agree about it. signals are the events that its run has behind its
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
		if e.EventType == runevents.RunQueued {
			continue // where it waited for a moment, behind the town's put
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
	for _, point := range failpoint.Points() {
		if point == failpoint.Committed {
			continue // of what the engine applies itself: see TestKillWhereTheRulesApply
		}
		t.Run(string(point), func(t *testing.T) {
			t.Parallel()
			data, g := t.TempDir(), &game{changes: map[string]int{}, asked: map[string]int{}}
			serve := func(env ...string) *program {
				return launch(t, env, append([]string{"--listen", "127.0.0.1:0", "--data", data,
					"--sync", "interval"}, quickly...)...)
			}
			h := newHammer(t, 1)
			body := h.towns[0].next(t)
			p := serve(killAt + "=" + string(point))
			nc := p.connect()
			h.create(nc)
			play(t, nc, g)
			require.NoError(t, nc.PublishRequest(wire.Subject("main", "handoff"),
				nc.NewInbox(), body))
			p.awaitPoint()
			p = serve()
			nc = p.connect()
			play(t, nc, g)
			result := insist(t, func() *nats.Conn { return nc }, body)
			requireOnce(t, nc, g, body, result)
			requireSound(t, nc)
		})
	}
}

// Where the rules apply a command, a kill leaves it applied or not begun.
func TestKillWhereTheRulesApply(t *testing.T) {
	t.Parallel()
	for _, point := range []failpoint.Point{failpoint.Judged, failpoint.Committed} {
		t.Run(string(point), func(t *testing.T) {
			t.Parallel()
			data, h := t.TempDir(), newHammer(t, 1)
			body := h.towns[0].next(t)
			p := launch(t, []string{killAt + "=" + string(point)}, "--listen", "127.0.0.1:0",
				"--data", data)
			nc := p.connect()
			h.create(nc)
			require.NoError(t, nc.PublishRequest(wire.Subject("main", "handoff"),
				nc.NewInbox(), body))
			<-p.ended
			p = launch(t, nil, "--listen", "127.0.0.1:0", "--data", data)
			nc = p.connect()
			want := handoff.Executed
			if point == failpoint.Committed {
				want = handoff.Duplicate
			}
			result := insistWithin(t, func() *nats.Conn { return nc }, body, time.Minute)
			require.Equal(t, want, result.Status)
			requireSound(t, nc)
		})
	}
}

// A server that is killed when a proposal has come to wait for its approval, and again between the
// approval and the execution, has lost neither: the handoff waits once, and is executed once.
func TestKillBetweenAskingAndExecuting(t *testing.T) {
	t.Parallel()
	data, h := t.TempDir(), newHammer(t, 1)
	body := h.towns[0].next(t)
	serve := func(env ...string) *program {
		return launch(t, env, "--listen", "127.0.0.1:0", "--data", data,
			"--require-approval",
			"MAYOR_ACCEPT_MISSION,PROJECT_ADVANCE,SALVAGE_PLAN,TOWNSFOLK_TALK")
	}
	dies := func(p *program, verb string, request []byte) {
		nc := p.connect()
		require.NoError(t, nc.PublishRequest(wire.Subject("main", verb), nc.NewInbox(), request))
		p.awaitPoint()
	}
	p := serve(killAt + "=" + string(failpoint.Committed))
	h.create(p.connect())
	dies(p, "handoff", body)

	p = serve(killAt + "=" + string(failpoint.Committed))
	waiting := approvalsAt(t, p.connect())
	require.Len(t, waiting, 1)
	require.Equal(t, "waiting", waiting[0].Status)
	dies(p, "approval.decide", []byte(fmt.Sprintf(
		`{"handoffId":%q,"decision":"approve","reason":"","submit":true}`, waiting[0].HandoffID)))

	p = serve()
	nc := p.connect()
	waiting = approvalsAt(t, nc)
	require.Len(t, waiting, 1)
	require.Equal(t, "approved", waiting[0].Status)
	require.Equal(t, handoff.Executed,
		insistWithin(t, func() *nats.Conn { return nc }, body, time.Minute).Status)
	require.Empty(t, approvalsAt(t, nc))
	requireSound(t, nc)
}

type waitingApproval struct{ HandoffID, Status string }

func approvalsAt(t testing.TB, nc *nats.Conn) []waitingApproval {
	t.Helper()
	reply, err := nc.Request(wire.Subject("main", "approval.list"), []byte(`{}`), 20*time.Second)
	require.NoError(t, err)
	var page struct{ Approvals []waitingApproval }
	require.NoError(t, json.Unmarshal(reply.Data, &page), "%s", reply.Data)
	return page.Approvals
}

// With two servers on one NATS, the one that lives goes on with what the other had in hand.
func TestKillOneOfTwo(t *testing.T) {
	t.Parallel()
	for _, point := range failpoint.Points() {
		if point == failpoint.Committed {
			continue
		}
		t.Run(string(point), func(t *testing.T) {
			t.Parallel()
			nc := natstest.Connect(t)
			g := &game{changes: map[string]int{}, asked: map[string]int{}}
			play(t, nc, g)
			join := append([]string{"--nats", nc.ConnectedUrl()}, quickly...)
			dying := launch(t, []string{killAt + "=" + string(point)}, join...)
			launch(t, nil, join...)
			const towns = 6
			h := newHammer(t, towns)
			h.create(nc)
			var sending sync.WaitGroup
			for _, d := range h.towns {
				d.open = d.next(t)
			}
			results := make([]*handoff.Result, towns)
			for i, d := range h.towns {
				sending.Go(func() {
					results[i] = insist(t, func() *nats.Conn { return nc }, d.open)
				})
			}
			sending.Wait()
			for until := 0; ; until++ { // a queue group may have given it none of these
				select {
				case <-dying.ended:
				default:
					require.Less(t, until, 100, "the point is not reached")
					more := newHammer(t, towns+until+1)
					more.towns = more.towns[towns+until:]
					more.create(nc)
					body := more.towns[0].next(t)
					requireOnce(t, nc, g, body, insist(t, func() *nats.Conn { return nc }, body))
					continue
				}
				break
			}
			for i, d := range h.towns {
				requireOnce(t, nc, g, d.open, results[i])
			}
			requireSound(t, nc)
		})
	}
}

// requireSound checks with fsck that the log and all that is derived from it are whole.
func requireSound(t testing.TB, nc *nats.Conn) {
	t.Helper()
	report, err := fsck.Run(context.Background(), operator(t, nc), "main", fsck.Options{})
	require.NoError(t, err)
	require.Empty(t, report.Findings)
}
