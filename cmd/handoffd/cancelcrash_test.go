package main

import (
	"encoding/json"
	"fmt"
	"testing"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/stretchr/testify/require"

	"worldengine/worldengine/failpoint"
	"worldengine/worldengine/wire"
)

// A server that is killed at any point of cancelling a command that no game has leaves the command
// pending or the run cancelled; the operator's next word ends it, and the key is free.
func TestKillWhileCancelling(t *testing.T) {
	t.Parallel()
	points := failpoint.Cancelling()
	m := newMortal(t, served(t.TempDir(), "--plugin-absent", "wait")...)
	g, h := newGame(), newHammer(t, len(points))
	h.create(m.nc)
	for i, point := range points {
		body := h.towns[i].next(t)
		require.NoError(t, m.nc.PublishRequest(wire.Subject("main", wire.Handoff),
			m.nc.NewInbox(), body))
		runID := pendingRunOf(t, m.nc, h.towns[i].id)
		m.dies(point, wire.RunCancel, fmt.Appendf(nil, `{"runId":%q}`, runID))

		forced := fmt.Appendf(nil, `{"runId":%q,"force":true}`, runID)
		reply, err := m.nc.Request(wire.Subject("main", wire.RunCancel), forced, 20*time.Second)
		require.NoError(t, err)
		if point == failpoint.Withdrawn {
			require.Contains(t, string(reply.Data), "RUN_NOT_WAITING")
		} else {
			require.Empty(t, reply.Header.Get(wire.ErrorCodeHeader), "%s: %s", point, reply.Data)
		}
		requireCancelled(t, m.nc, runID)
		game := m.connect() // which is gone before the next handoff
		playAlone(t, game, g)
		requireOnce(t, m.nc, g, body, insist(t, func() *nats.Conn { return m.nc }, body))
		g.leave(t, game)
		requireSound(t, m.nc)
	}
}

// A run that was cancelled by force is alerted about, also where the server is killed right behind.
func TestKillBehindAForcedCancellation(t *testing.T) {
	t.Parallel()
	m := newMortal(t, served(t.TempDir(), "--plugin-absent", "wait")...)
	h := newHammer(t, 1)
	body := h.towns[0].next(t)
	h.create(m.nc)
	require.NoError(t, m.nc.PublishRequest(wire.Subject("main", wire.Handoff),
		m.nc.NewInbox(), body))
	runID := pendingRunOf(t, m.nc, h.towns[0].id)
	m.dies(failpoint.Withdrawn, wire.RunCancel, fmt.Appendf(nil, `{"runId":%q,"force":true}`, runID))
	requireCancelled(t, m.nc, runID)
	reply, err := m.nc.Request(wire.Subject("main", wire.AlertList), []byte(`{}`), 20*time.Second)
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
