package main

import (
	"encoding/json"
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/stretchr/testify/require"

	"worldengine/handoff"
	"worldengine/schemas"
	"worldengine/worldengine/town"
	"worldengine/worldengine/wire"
)

// largeTown returns a town whose put is some 500 KB.
func largeTown(id string) town.State {
	return town.NewState(&town.Snapshot{
		SchemaVersion: town.SchemaVersion, TownID: id, Projects: []town.Project{},
		SideQuests: []town.SideQuest{{ID: "q", Title: strings.Repeat("t", 490_000)}},
	})
}

// floodLog puts large towns from several clients until each has made so many, or the server is
// gone. stored is called after each put that was answered.
func floodLog(nc *nats.Conn, clients, each int, stored func()) *sync.WaitGroup {
	var flood sync.WaitGroup
	for i := range clients {
		flood.Go(func() {
			state := largeTown(fmt.Sprint("large ", i))
			for n := range each {
				request := fmt.Sprintf(`{"snapshot":%s}`, state.Canonical)
				if n > 0 {
					request = fmt.Sprintf(`{"snapshot":%s,"expectedSnapshotHash":%q}`,
						state.Canonical, state.Hash)
				}
				var reply *nats.Msg
				for again := true; again; {
					var err error
					if reply, err = nc.Request(wire.Subject("main", "town.put"), []byte(request),
						2*time.Minute); err != nil {
						return
					}
					if again = reply.Header.Get("Nats-Service-Error-Code") == "429"; again {
						time.Sleep(100 * time.Millisecond) // as Retry-After-Ms asks
					}
				}
				if reply.Header.Get("Nats-Service-Error-Code") == "" {
					stored()
				}
			}
		})
	}
	return &flood
}

// replay sends a handoff until it gets a result. Each answer before that must be 503
// INDEX_BEHIND with a pause, and none may be missing. It returns how many there were.
func replay(t *testing.T, nc *nats.Conn, body []byte) (*handoff.Result, int) {
	t.Helper()
	for behind, until := 0, time.Now().Add(2*time.Minute); ; behind++ {
		reply, err := nc.Request(wire.Subject("main", "handoff"), body, 20*time.Second)
		require.NoError(t, err, "no answer")
		if reply.Header.Get("Nats-Service-Error-Code") == "" {
			result, err := handoff.ParseResult(reply.Data, schemas.Limits{})
			require.NoError(t, err)
			return result, behind
		}
		require.Equal(t, "503", reply.Header.Get("Nats-Service-Error-Code"), "%s", reply.Data)
		require.Contains(t, string(reply.Data), `"INDEX_BEHIND"`)
		pause, err := time.ParseDuration(reply.Header.Get(wire.RetryAfterHeader) + "ms")
		require.NoError(t, err)
		require.Positive(t, pause)
		require.True(t, time.Now().Before(until), "the index stays behind")
		time.Sleep(pause) // what the server asks for
	}
}

// borrowed returns a handoff for another town with the proposalId, and so the key, of a handoff.
func borrowed(t *testing.T, of *handoff.Handoff, at town.State) []byte {
	t.Helper()
	p := of.Proposal
	p.ProposalID, p.TownID = of.ProposalID, at.Snapshot.TownID
	p.SnapshotHash, p.DecisionEpoch = at.Hash, at.Epoch()
	made, err := handoff.New(p)
	require.NoError(t, err)
	require.Equal(t, of.IdempotencyKey, made.IdempotencyKey)
	body, err := made.MarshalWire()
	require.NoError(t, err)
	return body
}

var behindPuts = flag.Int("behind.puts", 1,
	"how many puts each of the 4 clients of TestKillWhileTheIndexIsBehind makes; with as few as "+
		"the default no request may have to wait for the index")

// The server is killed in a flood of large puts, when a handoff was answered, and its index is lost.
// After the start the handoff's replay never executes again: it is asked to come back,
// and is the right duplicate at last. The same key in another town executes.
func TestKillWhileTheIndexIsBehind(t *testing.T) {
	t.Parallel()
	const clients = 4
	each := *behindPuts
	for _, again := range []string{"the town's first", "the other's first"} {
		t.Run(again, func(t *testing.T) {
			t.Parallel()
			data := t.TempDir()
			serve := func() *program {
				return launch(t, nil, "--listen", "127.0.0.1:0", "--data", data,
					"--sync", "interval")
			}
			p := serve()
			nc := p.connect()
			h := newHammer(t, 2)
			h.create(nc)
			body := h.towns[0].next(t)
			enough, count := make(chan struct{}), 0
			var mu sync.Mutex
			flood := floodLog(p.connect(), clients, each, func() {
				mu.Lock()
				defer mu.Unlock()
				if count++; count == clients*each*3/4 {
					close(enough)
				}
			})
			<-enough
			first, _ := replay(t, nc, body)
			require.Equal(t, handoff.Executed, first.Status)
			p.end(syscall.SIGKILL)
			flood.Wait()
			require.NoError(t, os.RemoveAll(filepath.Join(data, "index")))

			nc = serve().connect()
			made, err := handoff.Parse(body, schemas.Limits{})
			require.NoError(t, err)
			other := borrowed(t, made, h.towns[1].state)
			order := [][]byte{body, other}
			if again == "the other's first" {
				order = [][]byte{other, body}
			}
			results, behind := map[string]*handoff.Result{}, 0
			for _, sent := range order {
				result, times := replay(t, nc, sent)
				results[result.HandoffID] = result
				behind += times
			}
			t.Logf("%d answers 503 INDEX_BEHIND", behind)
			requireBoth(t, nc, made, first, results)
			requireSound(t, nc)
		})
	}
}

// requireBoth asserts that a handoff that was executed before a kill is a duplicate of its first
// result, that the one with its key in another town was executed, and that each town's result is
// found by the key.
func requireBoth(
	t *testing.T, nc *nats.Conn, made *handoff.Handoff, first *handoff.Result,
	results map[string]*handoff.Result,
) {
	t.Helper()
	require.Len(t, results, 2)
	for id, result := range results {
		want, townID := first.ResultID, made.Proposal.TownID
		if id == made.HandoffID {
			require.Equal(t, handoff.Duplicate, result.Status)
			require.Equal(t, first.ResultID, *result.Evaluation.DuplicateCheck.DuplicateOf)
		} else {
			require.Equal(t, handoff.Executed, result.Status)
			want, townID = result.ResultID, "town 1"
		}
		var kept struct{ Result struct{ ResultID string } }
		asked := fmt.Sprintf(`{"idempotencyKey":%q,"townId":%q}`, made.IdempotencyKey, townID)
		require.NoError(t, json.Unmarshal(bodyOf(t, nc, "result.get", []byte(asked)), &kept))
		require.Equal(t, want, kept.Result.ResultID, townID)
		var at struct{ DecisionEpoch int64 }
		require.NoError(t,
			json.Unmarshal(request(t, nc, "town.get", fmt.Sprintf(`{"townId":%q}`, townID)), &at))
		require.Equal(t, made.DecisionEpoch+1, at.DecisionEpoch, "%s: executed once", townID)
	}
}

// bodyOf returns the answer to a request, asked again as long as the index is behind the log.
func bodyOf(t *testing.T, nc *nats.Conn, verb string, body []byte) []byte {
	t.Helper()
	// A pause between tries.
	for until := time.Now().Add(30 * time.Second); ; time.Sleep(20 * time.Millisecond) {
		reply, err := nc.Request(wire.Subject("main", verb), body, 20*time.Second)
		require.NoError(t, err)
		if reply.Header.Get("Nats-Service-Error-Code") != "503" {
			require.Empty(t, reply.Header.Get("Nats-Service-Error-Code"), "%s", reply.Data)
			return reply.Data
		}
		require.True(t, time.Now().Before(until), "%s", reply.Data)
	}
}
