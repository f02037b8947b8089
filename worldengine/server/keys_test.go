package server_test

import (
	"errors"
	"fmt"
	"strconv"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/nats-io/nats.go/jetstream"
	"github.com/stretchr/testify/require"

	"worldengine/handoff"
	"worldengine/schemas"
	"worldengine/worldengine"
	"worldengine/worldengine/fsck"
	"worldengine/worldengine/server"
	"worldengine/worldengine/wire"
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
	second := start(t, func(c *server.Config) { c.NATS = srv.URL() })
	c := connect(t, srv)
	for i := range 30 {
		mine := c.put(snapshot(fmt.Sprintf("mine %d", i)), "")
		other := c.put(snapshot(fmt.Sprintf("other %d", i)), "")
		honest := parsed(t, propose(other, handoff.TalkToTownsfolk, "casual"))
		squat := propose(mine, handoff.AdvanceProject, "bridge")
		squat.ProposalID = honest.ProposalID
		squatter := parsed(t, squat)

		burnt := execute(t, srv, squatter)
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
		require.Eventually(t, func() bool { // the receipts have followed, whichever server is asked
			return c.resultOfKey(honest.IdempotencyKey, "") == executed.Result.ResultID
		}, 20*time.Second, 10*time.Millisecond, "the last one")
	}
}

// execute sends a handoff to the engine of a server, again while its receipts are behind the log.
func execute(t *testing.T, srv *server.Server, h *handoff.Handoff) worldengine.Answer {
	t.Helper()
	for {
		answer, err := srv.Engine().Execute(t.Context(), h)
		if !errors.Is(err, worldengine.ErrReceiptsBehind) {
			require.NoError(t, err)
			return answer
		}
	}
}

// deleteReceipts deletes the stream of receipts while servers count on it, once it is there.
func deleteReceipts(t *testing.T, js jetstream.JetStream) {
	t.Helper()
	require.Eventually(t, func() bool {
		return js.DeleteStream(t.Context(), wire.ReceiptStream("main")) == nil
	}, 30*time.Second, 10*time.Millisecond)
}

// replayer sends handoffs that fail, which leaves the epoch as it is, so that the receipt alone
// keeps them from being accepted again, and sends each of them again.
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
		p.Reason = "Because of " + strconv.Itoa(n)
		h := parsed(r.t, p)
		r.sent = append(r.sent, h)
		for i, h := range []*handoff.Handoff{h, r.sent[n/2], h, r.sent[0]} {
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
		if errors.Is(err, worldengine.ErrReceiptsBehind) {
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

// The stream of receipts may be deleted at any moment while two servers work: no key that was
// accepted is free meanwhile, each request is answered, and afterwards all is as the log says.
func TestReceiptsAreDeletedUnderTraffic(t *testing.T) {
	t.Parallel()
	srv := start(t, open)
	second := start(t, func(c *server.Config) { c.NATS = srv.URL() })
	c := connect(t, srv)
	js, err := jetstream.New(c.nc)
	require.NoError(t, err)
	var behind atomic.Int64
	var work sync.WaitGroup
	replayers := make([]*replayer, 6)
	for i := range replayers {
		r := &replayer{
			t: t, engines: []*worldengine.Engine{srv.Engine(), second.Engine()}, behind: &behind,
			at: c.put(snapshot(fmt.Sprint("town ", i)), ""), first: map[string]string{},
		}
		replayers[i] = r
	}
	done := make(chan struct{})
	deleted := 0
	for _, r := range replayers {
		work.Go(func() { r.work(3 * *rivalRounds) })
	}
	go func() { defer close(done); work.Wait() }()
	for working := true; working && deleted < 3; deleted++ {
		deleteReceipts(t, js)
		select {
		case <-done:
			working = false
		case <-time.After(300 * time.Millisecond): // some traffic between, not waited for
		}
	}
	<-done
	t.Logf("deleted %d times, %d requests were told to ask again", deleted, behind.Load())
	for _, r := range replayers {
		for key, resultID := range r.first {
			require.Equal(t, resultID, c.resultOfKey(key, r.at.TownID))
		}
	}
	report, err := fsck.Run(t.Context(), c.nc, "main", fsck.Options{Logger: quiet()})
	require.NoError(t, err)
	require.True(t, report.Clean(), "%+v", report.Findings)
}
