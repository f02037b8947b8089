package main

import (
	"encoding/json"
	"fmt"
	"syscall"
	"testing"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"worldengine/runevents"
	"worldengine/worldengine/failpoint"
	"worldengine/worldengine/projection"
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

// A server that is killed just before or behind its projector keeps its watermark leaves one that
// the next projector goes on from: it misses nothing of what has come since, however much that is,
// and raises each alert once.
func TestKillWhileAProjectorKeepsItsWatermark(t *testing.T) {
	t.Parallel()
	args := []string{"--listen", "127.0.0.1:0", "--http", "off", "--sync", "interval",
		"--data", t.TempDir()}
	m := newMortal(t, args...)
	kept := keptWatermark(t, m.nc, 0)
	for i, point := range []failpoint.Point{failpoint.Keeping, failpoint.Kept} {
		ends := appended(t, fmt.Sprint("run-", i), runevents.RunCompleted) // moves the watermark
		m.dies(point, wire.RunAppend, ends)
		appendTo(t, m.nc, ends) // stored already, unless it was killed too early for that
		kept = keptWatermark(t, m.nc, kept+1)
	}
	m.end(syscall.SIGKILL)

	p := launch(t, nil, append(args, "--no-projector")...)
	nc := p.connect()
	appendTo(t, nc, appended(t, "run-2", runevents.RunCompleted))
	beginRuns(t, nc, projection.DefaultLookback+8) // more than it looks back without a watermark
	p.end(syscall.SIGKILL)

	nc = launch(t, nil, args...).connect()
	keptWatermark(t, nc, kept+projection.DefaultLookback)
	require.EventuallyWithT(t, func(t *assert.CollectT) {
		assert.Equal(t, map[string]int{"run-0": 1, "run-1": 1, "run-2": 1}, invalidRuns(t, nc))
	}, 60*time.Second, 10*time.Millisecond)
	requireSound(t, nc)
}

// appendTo makes a request of run.append. A projector alerts about the end of a run that has not
// begun.
func appendTo(t *testing.T, nc *nats.Conn, events []byte) {
	t.Helper()
	reply, err := nc.Request(wire.Subject("main", wire.RunAppend), events, 30*time.Second)
	require.NoError(t, err)
	require.Empty(t, reply.Header.Get(wire.ErrorCodeHeader), "%s", reply.Data)
}

// beginRuns appends the start of so many runs. It sends a hundred requests at a time, which takes
// less processor time than a few.
func beginRuns(t *testing.T, nc *nats.Conn, count int) {
	t.Helper()
	const atATime = 100
	answers, inbox := make(chan *nats.Msg, atATime), nc.NewInbox()
	sub, err := nc.ChanSubscribe(inbox, answers)
	require.NoError(t, err)
	late := time.After(time.Minute)
	for sent := 0; sent < count; {
		began := sent
		for ; sent < min(began+atATime, count); sent++ {
			require.NoError(t, nc.PublishRequest(wire.Subject("main", wire.RunAppend), inbox,
				appended(t, fmt.Sprint("other-", sent), runevents.RunStarted)))
		}
		for range sent - began {
			select {
			case reply := <-answers:
				require.Empty(t, reply.Header.Get(wire.ErrorCodeHeader), "%s", reply.Data)
			case <-late:
				require.Fail(t, "the starts of runs are not answered")
			}
		}
	}
	require.NoError(t, sub.Unsubscribe())
}

// keptWatermark waits until a projector has kept a watermark that is not before a place, and
// returns it.
func keptWatermark(t *testing.T, nc *nats.Conn, least uint64) uint64 {
	t.Helper()
	js, err := jetstream.New(operator(t, nc))
	require.NoError(t, err)
	var kept struct{ Seq uint64 }
	require.Eventually(t, func() bool {
		kv, err := js.KeyValue(t.Context(), wire.ProjectorBucket("main"))
		if err != nil {
			return false
		}
		entry, err := kv.Get(t.Context(), "watermark")
		return err == nil && json.Unmarshal(entry.Value(), &kept) == nil && kept.Seq >= least
	}, 60*time.Second, 10*time.Millisecond)
	return kept.Seq
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
