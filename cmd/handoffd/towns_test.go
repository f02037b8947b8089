package main

import (
	"bytes"
	"encoding/json"
	"flag"
	"fmt"
	"os"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/stretchr/testify/require"

	"worldengine/handoff"
	"worldengine/worldengine/wire"
)

var (
	townCount = flag.Int("towns", 200, "of how many distinct towns a server is asked")
	townArgs  = flag.String("towns.args", "",
		"further arguments of that server, such as --memory=2GiB")
)

// What a town may cost in resident memory, whatever the machine: about twice what was measured with
// a million of them. slack is what a server may take beside its towns: some 40 MiB are in use, most
// of them blocks of NATS's storage, and the heap grows to 150-210 MiB before they are collected;
// more of it with the shadow that the race detector keeps. With the default number of towns it is
// nearly all of the bound, and only a leak of a megabyte a town is seen; with a million, one of a
// kilobyte. What a few thousand unknown towns leave in the heap is measured by
// TestNothingIsKeptOfUnknownTowns of package server.
const (
	// an event subject, and the log's subject of the town's refused runs
	mostPerRefusal = 5 << 10 / 2
	mostPerUnknown = 8 // nothing is kept
	mostPerTown    = 4 << 10
	slack          = raceOverhead * 256 << 20
)

// Of however many distinct towns a server is asked, each request is answered, and the memory of the
// process stays within what towns that exist and runs that are kept may cost; asking for towns that
// do not exist costs nothing that stays.
func TestManyTowns(t *testing.T) {
	for _, c := range []struct {
		name, verb, code string
		most             int64
		body             func(n int) []byte
	}{
		{"handoffs for unknown towns", "handoff", "", mostPerRefusal, func(n int) []byte {
			return handoffFor(t, n)
		}},
		{"town.get of unknown towns", "town.get", "404", mostPerUnknown, func(n int) []byte {
			return fmt.Appendf(nil, `{"townId":"town-%d"}`, n)
		}},
		{"town.put of new towns", "town.put", "", mostPerTown, func(n int) []byte {
			return fmt.Appendf(nil,
				`{"snapshot":{"schemaVersion":"snapshot.v1","day":1,"townId":"town-%d","mission":null,`+
					`"sideQuests":[],"pressure":{"threat":0,"scarcity":0,"hope":1,"dread":0},"projects":[],`+
					`"latestNetherEvent":null}}`, n)
		}},
	} {
		t.Run(c.name, func(t *testing.T) {
			args := append([]string{"--listen", "127.0.0.1:0", "--data", t.TempDir(),
				"--sync", "interval"},
				strings.Fields(*townArgs)...)
			p := launch(t, nil, args...)
			defer p.end(syscall.SIGKILL)
			a := newAskers(t, p, c.verb, c.code)
			a.ask(0, *townCount/10, c.body) // what is made once is there
			first := p.memory("VmRSS")
			t.Logf("%8d towns: %4d MiB resident", *townCount/10, first>>20)
			for step := 1; step < 10; step++ {
				from, to := *townCount/10*step, *townCount/10*(step+1)
				began := time.Now()
				a.ask(from, to, c.body)
				now := p.memory("VmRSS")
				t.Logf("%8d towns: %4d MiB resident, %4d at most, %5d bytes a town since the "+
					"first step, %6.0f/s",
					to, now>>20, p.memory("VmHWM")>>20, (now-first)/int64(to-*townCount/10),
					float64(to-from)/time.Since(began).Seconds())
				require.Less(t, now, first+slack+c.most*int64(to))
			}
			reply := a.request(t, "town.get", []byte(`{"townId":"town-0"}`))
			require.NotContains(t, reply.Header.Get("Nats-Service-Error-Code"), "5",
				"%s", reply.Data)
		})
	}
}

// handoffFor makes a handoff for a town that nobody has made.
func handoffFor(t testing.TB, n int) []byte {
	h, err := handoff.New(handoff.Proposal{
		Type: handoff.AdvanceProject, ActorID: "mayor-1", TownID: fmt.Sprint("town-", n),
		Priority: 0.5, Reason: "Because.", Args: map[string]string{"projectId": "wall"},
		SnapshotHash: strings.Repeat("0", 64),
	})
	if err != nil {
		t.Error(err)
		return nil
	}
	body, err := h.MarshalWire()
	if err != nil {
		t.Error(err)
	}
	return body
}

// memory returns a line of /proc/<pid>/status in bytes.
func (p *program) memory(line string) int64 {
	p.t.Helper()
	status, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", p.cmd.Process.Pid))
	require.NoError(p.t, err)
	_, rest, found := bytes.Cut(status, []byte(line+":"))
	require.True(p.t, found)
	kib, err := strconv.ParseInt(strings.Fields(string(rest))[0], 10, 64)
	require.NoError(p.t, err)
	return kib << 10
}

// askers ask a server over some connections, with a bounded number of requests on their way.
type askers struct {
	t          testing.TB
	verb, code string
	conns      []*nats.Conn
}

func newAskers(t testing.TB, p *program, verb, code string) *askers {
	a := &askers{t: t, verb: verb, code: code}
	for range 4 {
		a.conns = append(a.conns, p.connect())
	}
	return a
}

func (a *askers) request(t testing.TB, verb string, body []byte) *nats.Msg {
	t.Helper()
	reply, err := a.conns[0].Request(wire.Subject("main", verb), body, time.Minute)
	require.NoError(t, err)
	return reply
}

// ask asks of towns from up to to, each of which must be answered as it should.
func (a *askers) ask(from, to int, body func(n int) []byte) {
	a.t.Helper()
	const onTheirWay = 64 // of a connection
	next, answered := make(chan int), make([]int, len(a.conns)*onTheirWay)
	var work sync.WaitGroup
	for i := range answered {
		nc := a.conns[i%len(a.conns)]
		work.Go(func() {
			for n := range next {
				a.insist(nc, body(n))
				answered[i]++
			}
		})
	}
	for n := from; n < to && !a.t.Failed(); n++ {
		next <- n
	}
	close(next)
	work.Wait()
	all := 0
	for _, n := range answered {
		all += n
	}
	require.Equal(a.t, to-from, all)
}

// insist asks until there is an answer: a server that has too much to do says so.
func (a *askers) insist(nc *nats.Conn, body []byte) {
	for until := time.Now().Add(2 * time.Minute); !a.askOne(nc, body); {
		if time.Now().After(until) {
			a.t.Errorf("it has too much to do all the time: %s", body)
			return
		}
		time.Sleep(20 * time.Millisecond) // as Retry-After-Ms asks
	}
}

// askOne says false where it has to be asked again.
func (a *askers) askOne(nc *nats.Conn, body []byte) bool {
	reply, err := nc.Request(wire.Subject("main", a.verb), body, time.Minute)
	if err != nil {
		a.t.Error(err)
		return true
	}
	switch code := reply.Header.Get("Nats-Service-Error-Code"); {
	case code == "429" || code == "503":
		return false
	case code != a.code:
		a.t.Errorf("%s: %s", body, reply.Data)
	case a.verb == "handoff":
		var result struct{ ReasonCode string }
		if json.Unmarshal(reply.Data, &result) != nil ||
			result.ReasonCode != string(handoff.ReasonUnknownTown) {
			a.t.Errorf("%s: %s", body, reply.Data)
		}
	}
	return true
}
