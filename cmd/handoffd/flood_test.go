package main

import (
	"flag"
	"fmt"
	"strconv"
	"sync/atomic"
	"testing"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/stretchr/testify/require"

	"worldengine/worldengine/wire"
)

var (
	floodRequests = flag.Int("flood.requests", 3_000,
		"how many requests TestFloodOfReads sends at once")
	floodRest = flag.Duration("flood.rest", 0,
		"how long it waits then before it says how much memory is left")
)

// mostCollisions is how many requests may go without an answer: NATS draws the id by which an
// answer comes back to a client's account at random from 57 billion, and keeps one of two that draw
// the same. With the 200,000 that wait at most, that is one request of 300,000. Of some millions of
// requests more can be lost, where this process does not read its answers as fast as they come:
// NATS leaves out what a client has 96 MiB of before it.
const mostCollisions = 3

// answers counts the answers to a flood by their code; "" is that of one that was carried out, and
// 503 that of NATS where nobody takes the request.
type answers struct {
	total atomic.Int64
	codes [600]atomic.Int64
}

func (a *answers) take(msg *nats.Msg) {
	code := msg.Header.Get("Nats-Service-Error-Code") + msg.Header.Get("Status")
	n, _ := strconv.Atoi(code)
	a.codes[n].Add(1)
	a.total.Add(1)
}

func (a *answers) String() (text string) {
	for code := range a.codes {
		if n := a.codes[code].Load(); n > 0 {
			text += fmt.Sprintf("%d with %d, ", n, code)
		}
	}
	return text
}

// Reads that one client sends without waiting, as many as it likes, are all answered, and what the
// server keeps of them is bounded. The default number shows only that they are answered: some 3,000
// requests fit into the bound also where nothing is given back, which TestFloodOfRequests of
// package server would find. A million come near the bound (docs/evidence/hostile-clients.md).
func TestFloodOfReads(t *testing.T) {
	p := launch(t, nil, "--listen", "127.0.0.1:0", "--data", t.TempDir(), "--memory", "512MiB",
		"--world-file", worldFile(t), "--access", accessFile(t, mara))
	nc, err := nats.Connect(p.url, nats.UserInfo("mara", sentinel),
		nats.CustomInboxPrefix("_INBOX_mara"), nats.NoReconnect())
	require.NoError(t, err, "%s", p.stderr)
	defer nc.Close()
	before := p.memory("VmRSS")
	var got answers
	inbox := nc.NewInbox()
	sub, err := nc.Subscribe(inbox, got.take)
	require.NoError(t, err)
	require.NoError(t, sub.SetPendingLimits(-1, -1))
	began, most := time.Now(), int64(0)
	for n := range *floodRequests {
		require.NoError(t, nc.PublishRequest(wire.Subject("main", "town.get"), inbox,
			[]byte(`{"townId":"town-threatened"}`)))
		if n%10_000 == 0 {
			most = max(most, p.memory("VmRSS"))
		}
	}
	require.NoError(t, nc.FlushTimeout(time.Minute))
	for last, since := int64(-1), time.Now(); time.Since(since) < 3*time.Second &&
		last < int64(*floodRequests); {
		if now := got.total.Load(); now != last {
			last, since = now, time.Now()
		}
		most = max(most, p.memory("VmRSS"))
		time.Sleep(10 * time.Millisecond) // between two looks
	}
	t.Logf(
		"%d requests within %v: %s%d lost; resident %d MiB before, %d at most (VmHWM %d), %d at "+
			"the end",
		*floodRequests, time.Since(began).Round(time.Millisecond), &got,
		int64(*floodRequests)-got.total.Load(),
		before>>20, most>>20, p.memory("VmHWM")>>20, p.memory("VmRSS")>>20)
	require.Less(t, p.memory("VmHWM"), int64(raceOverhead*(512+128)<<20))
	require.LessOrEqual(t, int64(*floodRequests)-got.total.Load(),
		int64(mostCollisions+*floodRequests/100_000))
	nc.Close()
	if *floodRest > 0 {
		time.Sleep(*floodRest)
		t.Logf("resident %d MiB after %v", p.memory("VmRSS")>>20, *floodRest)
	}
}

var floodPuts = flag.Int("flood.puts", 1,
	"how many puts each of the 16 clients of TestFloodOfPuts makes")

// Puts of 500 KB by many clients are all carried out within the soft memory limit. The default
// number, 8 MB altogether, shows only that they are carried out; -flood.puts=60 comes near the
// bound (docs/evidence/hostile-clients.md). What followers read ahead is measured by
// TestAWindowInBytes of package follow.
func TestFloodOfPuts(t *testing.T) { // alone: it takes all processors
	const clients = 16
	p := launch(t, nil, "--listen", "127.0.0.1:0", "--data", t.TempDir(), "--memory", "1200MiB",
		"--sync", "interval")
	before := p.memory("VmRSS")
	var stored atomic.Int64
	began := time.Now()
	floodLog(p.connect(), clients, *floodPuts, func() { stored.Add(1) }).Wait()
	took := time.Since(began)
	t.Logf("%d of %d puts of 490 KB within %v, %.0f/s; resident %d MiB before, %d at most, %d at "+
		"the end",
		stored.Load(), clients**floodPuts, took.Round(time.Millisecond),
		float64(stored.Load())/took.Seconds(),
		before>>20, p.memory("VmHWM")>>20, p.memory("VmRSS")>>20)
	require.Less(t, p.memory("VmHWM"), int64(raceOverhead*(1200+200)<<20))
	require.Equal(t, int64(clients**floodPuts), stored.Load())
}
