package server_test

import (
	"errors"
	"fmt"
	"os"
	"strconv"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/stretchr/testify/require"

	"worldengine/handoff"
	"worldengine/schemas"
	"worldengine/worldengine"
	"worldengine/worldengine/fsck"
	"worldengine/worldengine/server"
)

func parsed(t testing.TB, p handoff.Proposal) *handoff.Handoff {
	t.Helper()
	h, err := handoff.Parse(marshalled(t, p), schemas.Limits{})
	require.NoError(t, err)
	return h
}

type resultReply struct {
	RunID  string
	Result struct{ ResultID string }
}

// resultOfKey is the result id that result.get shows; townID may be "".
func (c *client) resultOfKey(key, townID string) string {
	c.t.Helper()
	request := map[string]any{"idempotencyKey": key}
	if townID != "" {
		request["townId"] = townID
	}
	return call[resultReply](c, "result.get", schemas.ResultGetReply, request).Result.ResultID
}

// A key belongs to its town. An agent of one town that knows which proposal another town's agent
// will make, and uses its key in a handoff that fails, takes nothing from the other: it executes.
func TestAKeyOfAnotherTownIsFree(t *testing.T) {
	t.Parallel()
	srv := start(t, open)
	first, second := srv.Engine(), beside(t, srv)
	c := connect(t, srv)
	for i := range 30 {
		mine := c.put(snapshot(fmt.Sprintf("mine %d", i)), "")
		other := c.put(snapshot(fmt.Sprintf("other %d", i)), "")
		honest := parsed(t, propose(other, handoff.TalkToTownsfolk, "casual"))
		squat := propose(mine, handoff.AdvanceProject, "bridge")
		squat.ProposalID = honest.ProposalID
		squatter := parsed(t, squat)

		burnt := execute(t, first, squatter)
		require.Equal(t, handoff.Failed, burnt.Result.Status)
		c.refused("result.get", mustJSON(t, map[string]any{
			"idempotencyKey": honest.IdempotencyKey, "townId": other.TownID,
		}))
		executed := execute(t, second, honest)
		require.Equal(t, handoff.Executed, executed.Result.Status, "town %d", i)

		again := execute(t, second, squatter)
		require.Equal(t, burnt.Result.ResultID, *again.Result.Evaluation.DuplicateCheck.DuplicateOf)
		require.Equal(t, burnt.Result.ResultID, c.resultOfKey(honest.IdempotencyKey, mine.TownID))
		require.Equal(t, executed.Result.ResultID,
			c.resultOfKey(honest.IdempotencyKey, other.TownID))
		require.Equal(t, executed.Result.ResultID, c.resultOfKey(honest.IdempotencyKey, ""),
			"the last one, from either engine")
	}
}

// execute sends a handoff to an engine, again while its index is behind the log.
func execute(t *testing.T, e *worldengine.Engine, h *handoff.Handoff) worldengine.Answer {
	t.Helper()
	for {
		answer, err := e.Execute(t.Context(), h)
		if !errors.Is(err, worldengine.ErrIndexBehind) {
			require.NoError(t, err)
			return answer
		}
	}
}

// replayer sends handoffs that fail, which leaves the epoch as it is, so that their keys alone
// keep them from being accepted again, and sends each of them again.
type replayer struct {
	t       *testing.T
	engines []*worldengine.Engine
	at      townReply
	first   map[string]string // by key, the resultId
	sent    []*handoff.Handoff
	behind  *atomic.Int64
}

func (r *replayer) work(rounds int) {
	for n := range rounds {
		p := propose(r.at, handoff.AdvanceProject, "bridge")
		p.Reason = "Because of " + strconv.Itoa(len(r.sent))
		h := parsed(r.t, p)
		r.sent = append(r.sent, h)
		for i, h := range []*handoff.Handoff{h, r.sent[len(r.sent)/2], h, r.sent[0]} {
			if !r.send(r.engines[(n+i)%len(r.engines)], h) {
				return
			}
		}
	}
}

// send sends a handoff until it has a result.
func (r *replayer) send(e *worldengine.Engine, h *handoff.Handoff) bool {
	for {
		began := time.Now()
		answer, err := e.Execute(r.t.Context(), h)
		if time.Since(began) > 20*time.Second {
			r.t.Errorf("no answer for %s, which is silence to a client", time.Since(began))
		}
		if errors.Is(err, worldengine.ErrIndexBehind) {
			r.behind.Add(1)
			continue
		}
		if err != nil {
			r.t.Error(err)
			return false
		}
		before, known := r.first[h.IdempotencyKey]
		switch of := answer.Result.Evaluation.DuplicateCheck.DuplicateOf; {
		case !known && answer.Result.Status == handoff.Failed:
			r.first[h.IdempotencyKey] = answer.Result.ResultID
		case known && of != nil && *of == before:
		default:
			r.t.Errorf("known %v: %s", known, answer.JSON)
			return false
		}
		return true
	}
}

// The file of the index may be deleted at any moment under traffic, and be an older one at a start:
// no key that was accepted is free meanwhile, each request is answered, and nothing is lost.
func TestIndexIsDeletedUnderTraffic(t *testing.T) {
	t.Parallel()
	data := t.TempDir()
	with := func(c *server.Config) { c.Data = data }
	srv, err := server.Start(t.Context(), configure(open, with))
	require.NoError(t, err)
	c := connect(t, srv)
	nc, err := nats.Connect(srv.URL())
	require.NoError(t, err)
	defer nc.Close()
	second, err := worldengine.Open(t.Context(), nc, nc, worldengine.Config{Logger: quiet()})
	require.NoError(t, err)
	var behind atomic.Int64
	replayers := make([]*replayer, 6)
	for i := range replayers {
		replayers[i] = &replayer{
			t: t, engines: []*worldengine.Engine{srv.Engine(), second}, behind: &behind,
			at: c.put(snapshot(fmt.Sprint("town ", i)), ""), first: map[string]string{},
		}
	}
	var older []byte
	for n := range 3 { // deleted each time while they work
		var work sync.WaitGroup
		for _, r := range replayers {
			work.Go(func() { r.work(*rivalRounds) })
		}
		require.Eventually(t, func() bool {
			older, err = os.ReadFile(indexFile(data))
			return err == nil && os.Remove(indexFile(data)) == nil
		}, 30*time.Second, time.Millisecond)
		work.Wait()
		t.Logf("deleted %d times, %d requests were told to ask again", n+1, behind.Load())
	}
	require.NoError(t, second.Close(t.Context()))
	stop(t, srv)
	require.NoError(t, os.WriteFile(indexFile(data), older, 0o600))

	srv = start(t, open, with)
	c = connect(t, srv)
	for _, r := range replayers {
		r.engines = []*worldengine.Engine{srv.Engine()}
		for _, h := range r.sent {
			require.True(t, r.send(srv.Engine(), h))
		}
		for key, resultID := range r.first {
			require.Equal(t, resultID, c.resultOfKey(key, r.at.TownID))
		}
	}
	report, err := fsck.Run(t.Context(), c.nc, "main", fsck.Options{Logger: quiet()})
	require.NoError(t, err)
	require.True(t, report.Clean(), "%+v", report.Findings)
}
