package server_test

import (
	"bytes"
	"log/slog"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"worldengine/handoff"
	"worldengine/worldengine/server"
)

// logText is a log that may be read while it is written.
type logText struct {
	mu   sync.Mutex
	text bytes.Buffer
}

func (w *logText) Write(line []byte) (int, error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.text.Write(line)
}

func (w *logText) String() string {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.text.String()
}

// A drain that takes too long is an alert. The pause goes on, a resumption is taken, and a command that
// ends late is accepted and counts (Execution Semantics v1, section 6, option A).
func TestADrainTakesTooLong(t *testing.T) {
	t.Parallel()
	log := &logText{}
	srv := start(t, byPlugin, func(config *server.Config) {
		config.Logger = slog.New(slog.NewTextHandler(log, nil))
	})
	c := connect(t, srv)
	release := make(chan struct{})
	g := host(t, srv, agreeAfter(release))
	at := c.put(snapshot("t"), "")
	reply := c.sendLater(wire(t, propose(at, handoff.AdvanceProject, "wall")))
	g.until(1)
	c.signal("control.pause", map[string]any{"townId": "t", "drainTimeoutMs": 1})
	require.Eventually(t, func() bool { return strings.Contains(log.String(), "PAUSE_DRAIN_TIMEOUT") },
		20*time.Second, 10*time.Millisecond)
	late := c.signal("control.get", map[string]any{"townId": "t"})
	require.Equal(t, controlReply{TownID: "t", Status: "PAUSED", Applying: 1, Message: "Paused."}, late,
		"it is no longer waited for")
	c.signal("control.resume", map[string]any{"townId": "t"})
	close(release)
	executed := c.resultOf(<-reply)
	require.Equal(t, handoff.Executed, executed.result.Status)
	require.Equal(t, append(checked, "StepCompleted apply", "RunCompleted"), c.story(executed.runID))
	require.Equal(t, at.DecisionEpoch+1, c.town("t").DecisionEpoch)
}
