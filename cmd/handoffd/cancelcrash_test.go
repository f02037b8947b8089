package main

import (
	"encoding/json"
	"fmt"
	"testing"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/stretchr/testify/require"

	"worldengine/handoff"
	"worldengine/schemas"
	"worldengine/worldengine/failpoint"
	"worldengine/worldengine/wire"
)

// A server that is killed at any point of cancelling a command that no game has leaves the command
// pending or the run cancelled; the operator's next word ends it, and the key is free.
func TestKillWhileCancelling(t *testing.T) {
	t.Parallel()
	for _, point := range failpoint.Cancelling() {
		t.Run(string(point), func(t *testing.T) {
			t.Parallel()
			data, g := t.TempDir(), &game{changes: map[string]int{}, asked: map[string]int{}}
			serve := func(env ...string) *program {
				return launch(t, env, append([]string{"--listen", "127.0.0.1:0", "--data", data,
					"--sync", "interval",
					"--plugin-absent", "wait"}, quickly...)...)
			}
			h := newHammer(t, 1)
			body := h.towns[0].next(t)
			p := serve(killAt + "=" + string(point))
			nc := p.connect()
			h.create(nc)
			require.NoError(t, nc.PublishRequest(wire.Subject("main", "handoff"),
				nc.NewInbox(), body))
			sent, err := handoff.Parse(body, schemas.Limits{})
			require.NoError(t, err)
			runID := pendingRunOf(t, nc, sent.Proposal.TownID)
			cancel := fmt.Appendf(nil, `{"runId":%q}`, runID)
			require.NoError(t, nc.PublishRequest(wire.Subject("main", "run.cancel"),
				nc.NewInbox(), cancel))
			p.awaitPoint()

			p = serve()
			nc = p.connect()
			forced := fmt.Appendf(nil, `{"runId":%q,"force":true}`, runID)
			reply, err := nc.Request(wire.Subject("main", "run.cancel"), forced, 20*time.Second)
			require.NoError(t, err)
			if point == failpoint.Withdrawn {
				require.Contains(t, string(reply.Data), "RUN_NOT_WAITING")
			} else {
				require.Empty(t, reply.Header.Get(wire.ErrorCodeHeader), "%s", reply.Data)
			}
			requireCancelled(t, nc, runID)
			play(t, nc, g)
			requireOnce(t, nc, g, body, insist(t, func() *nats.Conn { return nc }, body))
			requireSound(t, nc)
		})
	}
}

// A run that was cancelled by force is alerted about, also where the server is killed right behind.
func TestKillBehindAForcedCancellation(t *testing.T) {
	t.Parallel()
	data := t.TempDir()
	serve := func(env ...string) *program {
		return launch(t, env, append([]string{"--listen", "127.0.0.1:0", "--data", data,
			"--sync", "interval", "--plugin-absent", "wait"}, quickly...)...)
	}
	h := newHammer(t, 1)
	body := h.towns[0].next(t)
	p := serve(killAt + "=" + string(failpoint.Withdrawn))
	nc := p.connect()
	h.create(nc)
	require.NoError(t, nc.PublishRequest(wire.Subject("main", "handoff"), nc.NewInbox(), body))
	sent, err := handoff.Parse(body, schemas.Limits{})
	require.NoError(t, err)
	runID := pendingRunOf(t, nc, sent.Proposal.TownID)
	forced := fmt.Appendf(nil, `{"runId":%q,"force":true}`, runID)
	require.NoError(t, nc.PublishRequest(wire.Subject("main", "run.cancel"),
		nc.NewInbox(), forced))
	p.awaitPoint()
	nc = serve().connect()
	requireCancelled(t, nc, runID)
	reply, err := nc.Request(wire.Subject("main", "alert.list"), []byte(`{}`), 20*time.Second)
	require.NoError(t, err)
	require.Contains(t, string(reply.Data), "APPLY_IN_DOUBT")
	require.Contains(t, string(reply.Data), runID)
}

// pendingRunOf returns the run whose command is pending in a town, once there is one.
func pendingRunOf(t *testing.T, nc *nats.Conn, townID string) string {
	t.Helper()
	var at struct{ PendingRunID string }
	require.Eventually(t, func() bool {
		reply, err := nc.Request(wire.Subject("main", "town.get"),
			fmt.Appendf(nil, `{"townId":%q}`, townID), 10*time.Second)
		return err == nil && json.Unmarshal(reply.Data, &at) == nil && at.PendingRunID != ""
	}, 30*time.Second, 10*time.Millisecond)
	return at.PendingRunID
}

func requireCancelled(t *testing.T, nc *nats.Conn, runID string) {
	t.Helper()
	var run struct{ Status string }
	require.Eventually(t, func() bool {
		reply, err := nc.Request(wire.Subject("main", "run.get"),
			fmt.Appendf(nil, `{"runId":%q}`, runID), 10*time.Second)
		return err == nil && json.Unmarshal(reply.Data, &run) == nil && run.Status == "CANCELLED"
	}, 30*time.Second, 10*time.Millisecond)
}
