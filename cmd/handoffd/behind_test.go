package main

import (
	"flag"
	"os"
	"path/filepath"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/stretchr/testify/require"

	"worldengine/handoff"
	"worldengine/schemas"
	"worldengine/worldengine/wire"
)

var behindPuts = flag.Int("behind.puts", 1,
	"how many puts each of the 4 clients of TestKill_IndexBehind makes; with as few as the default "+
		"no request may have to wait for the index")

// sendBehind sends a handoff until it gets a result. Each answer before that must be 503
// INDEX_BEHIND with a pause. It returns how many there were.
func sendBehind(t *testing.T, nc *nats.Conn, body []byte) (*handoff.Result, int) {
	t.Helper()
	for behind, until := 0, time.Now().Add(2*time.Minute); ; behind++ {
		reply, err := nc.Request(wire.Subject("main", wire.Handoff), body, 20*time.Second)
		require.NoError(t, err)
		if reply.Header.Get(wire.ErrorCodeHeader) == "" {
			result, err := handoff.ParseResult(reply.Data, schemas.Limits{})
			require.NoError(t, err)
			return result, behind
		}
		require.Equal(t, "503", reply.Header.Get(wire.ErrorCodeHeader), "%s", reply.Data)
		require.Contains(t, string(reply.Data), `"INDEX_BEHIND"`)
		pause, err := time.ParseDuration(reply.Header.Get(wire.RetryAfterHeader) + "ms")
		require.NoError(t, err)
		require.Positive(t, pause)
		require.True(t, time.Now().Before(until), "the index stays behind")
		time.Sleep(pause) // as the server asks
	}
}

// The server is killed in a flood of large puts, when a handoff was answered, and its index is lost.
// After the start the handoff never executes again: its client is asked to come back, and gets the
// right duplicate at last. The same key in another town executes.
func TestKill_IndexBehind(t *testing.T) {
	t.Parallel()
	const clients = 4
	for name, otherFirst := range map[string]bool{"the town's first": false, "the other's first": true} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			data := t.TempDir()
			start := func() *program { return launch(t, nil, onData(data, "--sync", "interval")...) }
			p := start()
			nc := p.connect()
			h := newHammer(t, 2)
			h.create(nc)
			body := h.towns[0].next(t)
			enough := make(chan struct{})
			var stored atomic.Int64
			flood := floodLog(p.connect(), clients, *behindPuts, func() {
				if stored.Add(1) == int64(clients**behindPuts*3/4) {
					close(enough)
				}
			})
			<-enough
			first, _ := sendBehind(t, nc, body)
			require.Equal(t, handoff.Executed, first.Status)
			p.end(syscall.SIGKILL)
			flood.Wait()
			require.NoError(t, os.RemoveAll(filepath.Join(data, "index")))

			nc = start().connect()
			sent, err := handoff.Parse(body, schemas.Limits{})
			require.NoError(t, err)
			borrowed := sent.Proposal // with the key of the first, for the other town
			borrowed.ProposalID = sent.ProposalID
			borrowed.TownID, borrowed.SnapshotHash = h.towns[1].id, h.towns[1].state.Hash
			borrowed.DecisionEpoch = h.towns[1].state.Epoch()
			other, err := handoff.New(borrowed)
			require.NoError(t, err)
			require.Equal(t, sent.IdempotencyKey, other.IdempotencyKey)
			otherBody, err := other.MarshalWire()
			require.NoError(t, err)

			order := [][]byte{body, otherBody}
			if otherFirst {
				order = [][]byte{otherBody, body}
			}
			results, behind := map[string]*handoff.Result{}, 0
			for _, sent := range order {
				result, times := sendBehind(t, nc, sent)
				results[result.HandoffID] = result
				behind += times
			}
			t.Logf("%d answers 503 INDEX_BEHIND", behind)
			again, executed := results[sent.HandoffID], results[other.HandoffID]
			require.Equal(t, handoff.Duplicate, again.Status)
			require.Equal(t, first.ResultID, *again.Evaluation.DuplicateCheck.DuplicateOf)
			require.Equal(t, handoff.Executed, executed.Status)
			for i, want := range []string{first.ResultID, executed.ResultID} {
				id := h.towns[i].id
				kept := ask[struct{ Result struct{ ResultID string } }](t, nc, wire.ResultGet,
					members{"idempotencyKey": sent.IdempotencyKey, "townId": id})
				require.Equal(t, want, kept.Result.ResultID, id)
				require.Equal(t, sent.DecisionEpoch+1, townOf(t, nc, id).DecisionEpoch, "once")
			}
			requireSound(t, nc)
		})
	}
}
