package main

import (
	"archive/tar"
	"compress/gzip"
	"encoding/json"
	"errors"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/stretchr/testify/require"

	"worldengine/handoff"
	"worldengine/schemas"
	"worldengine/worldengine/wire"
)

// oldData is the data directory that an earlier version left behind, and what it had answered.
type oldData struct {
	t   *testing.T
	dir string
}

// unpack unpacks an archive of testdata/datadirs.
func unpack(t *testing.T, archive string) *oldData {
	t.Helper()
	file, err := os.Open(archive)
	require.NoError(t, err)
	defer file.Close()
	plain, err := gzip.NewReader(file)
	require.NoError(t, err)
	o := &oldData{t: t, dir: t.TempDir()}
	for entries := tar.NewReader(plain); ; {
		header, err := entries.Next()
		if errors.Is(err, io.EOF) {
			return o
		}
		require.NoError(t, err)
		path := filepath.Join(o.dir, filepath.FromSlash(header.Name))
		if header.Typeflag == tar.TypeDir {
			require.NoError(t, os.MkdirAll(path, 0o750))
			continue
		}
		content, err := io.ReadAll(entries)
		require.NoError(t, err)
		require.NoError(t, os.WriteFile(path, content, 0o640))
	}
}

// answer returns what was answered then; of a handoff, or of a list.
func (o *oldData) answer(name string) []byte {
	o.t.Helper()
	data, err := os.ReadFile(filepath.Join(o.dir, "answers", name))
	require.NoError(o.t, err)
	return data
}

// requireHas asserts that a list of runs has the rows and members of an earlier one. It may have
// more members.
func requireHas(t *testing.T, then, now []byte) {
	t.Helper()
	var before, after struct{ Runs []map[string]any }
	require.NoError(t, json.Unmarshal(then, &before))
	require.NoError(t, json.Unmarshal(now, &after))
	require.Len(t, after.Runs, len(before.Runs))
	for i := range before.Runs {
		for member, value := range before.Runs[i] {
			require.Equal(t, value, after.Runs[i][member], "run %d: %s", i, member)
		}
	}
}

// requireKept asserts that the handoff of a name has, by its key, the run and the result that it
// got.
func (o *oldData) requireKept(nc *nats.Conn, name string) {
	o.t.Helper()
	h := o.handoff(name)
	for _, request := range []map[string]string{
		{"idempotencyKey": h.IdempotencyKey},
		{"idempotencyKey": h.IdempotencyKey, "townId": h.Proposal.TownID},
	} {
		body, err := json.Marshal(request)
		require.NoError(o.t, err)
		require.JSONEq(o.t, string(o.answer(name+".result")),
			string(bodyOf(o.t, nc, "result.get", body)))
	}
	o.requireRevision1(nc, name, h)
}

// requireRevision1 asserts that a result can be had in a revision that is newer than what was
// stored.
func (o *oldData) requireRevision1(nc *nats.Conn, name string, h *handoff.Handoff) {
	o.t.Helper()
	var then, now struct{ Result json.RawMessage }
	require.NoError(o.t, json.Unmarshal(o.answer(name+".result"), &then))
	result, err := handoff.ParseResult(then.Result, schemas.Limits{})
	require.NoError(o.t, err)
	want, err := result.Revision1(handoff.AdditionOf(h), nil)
	require.NoError(o.t, err)

	request := nats.NewMsg(wire.Subject("main", "result.get"))
	request.Header.Set(wire.ResultRevisionHeader, "1")
	request.Data = []byte(`{"idempotencyKey":"` + h.IdempotencyKey + `"}`)
	reply, err := nc.RequestMsg(request, 20*time.Second)
	require.NoError(o.t, err)
	require.NoError(o.t, json.Unmarshal(reply.Data, &now), "%s", reply.Data)
	got, err := handoff.ParseResult1(now.Result, schemas.Limits{})
	require.NoError(o.t, err)
	require.Equal(o.t, want, got)
}

func (o *oldData) handoff(name string) *handoff.Handoff {
	o.t.Helper()
	h, err := handoff.Parse(o.answer(name+".handoff"), schemas.Limits{})
	require.NoError(o.t, err)
	return h
}

// bodyOf returns the answer to a request, asked again as long as the receipts follow the log.
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

// next returns a new handoff for the state that a town has now.
func next(t *testing.T, nc *nats.Conn, townID string) []byte {
	t.Helper()
	var at struct {
		SnapshotHash  string
		DecisionEpoch int64
	}
	require.NoError(t, json.Unmarshal(request(t, nc, "town.get", `{"townId":"`+townID+`"}`), &at))
	made, err := handoff.New(handoff.Proposal{
		Type: handoff.TalkToTownsfolk, ActorID: "mayor-1", TownID: townID,
		Priority: 0.5, Reason: "Because.",
		Args:         map[string]string{"talkType": "casual"},
		SnapshotHash: at.SnapshotHash, DecisionEpoch: at.DecisionEpoch,
	})
	require.NoError(t, err)
	body, err := made.MarshalWire()
	require.NoError(t, err)
	return body
}

// The data directory of every earlier version opens: towns, results, runs and pauses are as they
// were, what is derived equals the log, a command that was being applied is brought to its end, and
// the next handoffs execute.
func TestEarlierDataDirectory(t *testing.T) {
	t.Parallel()
	archives, err := filepath.Glob("../../testdata/datadirs/*.tar.gz")
	require.NoError(t, err)
	require.NotEmpty(t, archives)
	for _, archive := range archives {
		t.Run(strings.TrimSuffix(filepath.Base(archive), ".tar.gz"), func(t *testing.T) {
			t.Parallel()
			o := unpack(t, archive)
			args := []string{
				"--listen", "127.0.0.1:0", "--data", filepath.Join(o.dir, "data"),
				"--plugin-backoff", "5ms",
				"--plugin-resend", "200ms", "--dedupe-retention", "876000h",
				"--runevents-retention", "876000h",
			}
			p := launch(t, nil, args...)
			nc := p.connect()
			o.requireAsItWas(nc)
			requireSound(t, nc)
			o.goesOn(nc)
			p.end(syscall.SIGTERM)
			require.NoError(t, p.err, "%s", p.stderr)

			nc = launch(t, nil, args...).connect()
			for _, name := range []string{"executed", "failed", "resumed"} {
				o.requireKept(nc, name)
			}
			requireSound(t, nc)
		})
	}
}

// requireAsItWas asserts that everything is answered as it was by the server that wrote the
// directory.
func (o *oldData) requireAsItWas(nc *nats.Conn) {
	o.t.Helper()
	require.JSONEq(o.t, string(o.answer("towns.json")), string(request(o.t, nc, "town.list", `{}`)))
	requireHas(o.t, o.answer("runs.json"),
		bodyOf(o.t, nc, "run.list", []byte(`{"order":"oldest"}`)))
	for _, name := range []string{"executed", "failed", "resumed"} {
		o.requireKept(nc, name)
	}
	var then struct{ Result json.RawMessage }
	require.NoError(o.t, json.Unmarshal(o.answer("duplicate.result"), &then))
	again := bodyOf(o.t, nc, "handoff", o.answer("executed.handoff"))
	require.Equal(o.t, string(then.Result), string(again), "a replay has the same bytes")
	require.NotEmpty(o.t, pendingRun(o.t, nc, "town-game"))
	require.Contains(o.t, string(request(o.t, nc, "control.get", `{"townId":"town-quiet"}`)),
		"left paused")
}

// goesOn asserts that the world goes on: the command that is pending is applied, the pause ends
// when it is told to, and a handoff for each town executes.
func (o *oldData) goesOn(nc *nats.Conn) {
	o.t.Helper()
	g := newGame()
	play(o.t, nc, g)
	result := insist(o.t, func() *nats.Conn { return nc }, o.answer("pending.handoff"))
	require.True(o.t, slices.Contains([]handoff.Status{handoff.Executed, handoff.Duplicate},
		result.Status), result.Status)
	g.mu.Lock()
	require.Equal(o.t, 1, g.changes[o.handoff("pending").HandoffID], "the game was changed once")
	g.mu.Unlock()
	request(o.t, nc, "control.resume", `{"townId":"town-quiet","actorId":"o","reason":"to go on"}`)
	for _, townID := range []string{"town-threatened", "town-quiet", "town-game",
		"Fort Ашера № 2"} {
		result := insist(o.t, func() *nats.Conn { return nc }, next(o.t, nc, townID))
		require.Equal(o.t, handoff.Executed, result.Status, townID)
	}
	requireSound(o.t, nc)
}
