package main

import (
	"encoding/json"
	"fmt"
	"syscall"
	"testing"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"worldengine/runevents"
	"worldengine/worldengine/wire"
)

// A projector runs in every server that is not told otherwise.
func TestAProjectorRuns(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		args []string
		runs bool
	}{{nil, true}, {[]string{"--projector"}, true}, {[]string{"--no-projector"}, false}} {
		p := launch(t, nil,
			append([]string{"--listen", "127.0.0.1:0", "--http", "off", "--data", t.TempDir()},
				c.args...)...)
		require.NotEmpty(t, p.url, "%s", p.stderr)
		require.Equal(t, c.runs, tellsLag(t, p.connect()), "%v", c.args)
		p.end(syscall.SIGTERM)
	}
}

// A server that is killed, or serves without a projector, leaves nothing that the next projector
// misses, and each alert is raised once.
func TestProjector_GoesOnAfterAKill(t *testing.T) {
	t.Parallel()
	args := []string{"--listen", "127.0.0.1:0", "--http", "off", "--sync", "interval",
		"--data", t.TempDir()}
	want := map[string]int{}
	for i, more := range [][]string{nil, {"--no-projector"}, nil} {
		p := launch(t, nil, append(args, more...)...)
		nc, run := p.connect(), fmt.Sprint("run-", i)
		appendTo(t, nc, appended(t, run, runevents.RunCompleted))
		if want[run] = 1; more == nil {
			require.EventuallyWithT(t, func(t *assert.CollectT) {
				assert.Equal(t, want, invalidRuns(t, nc))
			}, 60*time.Second, 10*time.Millisecond)
		}
		if i == 2 {
			requireSound(t, nc)
		}
		p.end(syscall.SIGKILL)
	}
}

// appendTo makes a request of run.append. A projector alerts about the end of a run that has not
// begun.
func appendTo(t *testing.T, nc *nats.Conn, events []byte) {
	t.Helper()
	reply, err := nc.Request(wire.Subject("main", wire.RunAppend), events, 30*time.Second)
	require.NoError(t, err)
	require.Empty(t, reply.Header.Get(wire.ErrorCodeHeader), "%s", reply.Data)
}

// invalidRuns returns how often the alerts say of which run that an event of it is invalid.
func invalidRuns(t require.TestingT, nc *nats.Conn) map[string]int {
	reply, err := nc.Request(wire.Subject("main", wire.AlertList), []byte("{}"), 30*time.Second)
	require.NoError(t, err)
	var page struct {
		Alerts []struct{ Code, RunID string }
	}
	require.NoError(t, json.Unmarshal(reply.Data, &page))
	found := map[string]int{}
	for _, a := range page.Alerts {
		if a.Code == string(runevents.InvalidTransition) {
			found[a.RunID]++
		}
	}
	return found
}

// tellsLag reports whether the statistics say how far projections are behind.
func tellsLag(t *testing.T, nc *nats.Conn) bool {
	t.Helper()
	reply, err := nc.Request("$SRV.STATS."+wire.ServiceName, nil, 30*time.Second)
	require.NoError(t, err)
	var stats struct {
		Endpoints []struct {
			Data struct{ ProjectorLagMs *int64 }
		}
	}
	require.NoError(t, json.Unmarshal(reply.Data, &stats))
	require.NotEmpty(t, stats.Endpoints)
	return stats.Endpoints[0].Data.ProjectorLagMs != nil
}
