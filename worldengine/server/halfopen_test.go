package server_test

import (
	"bufio"
	"errors"
	"flag"
	"fmt"
	"io"
	"net"
	"runtime"
	"runtime/pprof"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"worldengine/worldengine/server"
)

var connectionCount = flag.Int("connections", 24, "how many connections bad clients make at a time")

// raw connects to a server without being a NATS client, and reads what the server says first.
func raw(t testing.TB, srv *server.Server) net.Conn {
	t.Helper()
	conn, err := net.Dial("tcp", strings.TrimPrefix(srv.URL(), "nats://"))
	require.NoError(t, err)
	t.Cleanup(func() { conn.Close() })
	require.NoError(t, conn.SetDeadline(time.Now().Add(60*time.Second)))
	_, err = bufio.NewReaderSize(conn, 16).ReadString(' ')
	require.NoError(t, err)
	return conn
}

// requireClosed reads until the server closes a connection, or resets it.
func requireClosed(t testing.TB, conn net.Conn) {
	t.Helper()
	_, err := io.Copy(io.Discard, conn)
	var late net.Error
	require.False(t, errors.As(err, &late) && late.Timeout(), "the server keeps it: %v", err)
}

// served checks that a client is served while others are bad, and says how fast.
func served(t testing.TB, c *client, town string, requests int) {
	t.Helper()
	var took []time.Duration
	for range requests {
		began := time.Now()
		c.town(town)
		took = append(took, time.Since(began))
	}
	slices.Sort(took)
	t.Logf("others are served: p50 %v, p99 %v", took[len(took)/2], took[len(took)*99/100])
}

// requireRest waits until a process has no more goroutines than before, and little more memory.
func requireRest(t testing.TB, goroutines int, heap uint64) {
	t.Helper()
	for until := time.Now().Add(30 * time.Second); runtime.NumGoroutine() > goroutines+
		2; time.Sleep(10 * time.Millisecond) {
		if time.Now().After(until) {
			var stacks strings.Builder
			_ = pprof.Lookup("goroutine").WriteTo(&stacks, 1)
			t.Fatalf("there were %d goroutines, and are %d: %s", goroutines,
				runtime.NumGoroutine(), &stacks)
		}
	}
	now := heapInUse()
	for until := time.Now().Add(30 * time.Second); now > heap+32<<20; now = heapInUse() {
		require.True(t, time.Now().Before(until), "the heap had %d KiB, and has %d",
			heap>>10, now>>10)
		time.Sleep(100 * time.Millisecond) // between two looks
	}
	t.Logf("heap before %d KiB, after %d KiB", heap>>10, now>>10)
}

func heapInUse() uint64 {
	runtime.GC()
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return m.HeapAlloc
}

// Clients that stop in the middle of whatever they say are closed by the server after some pings.
// Others are served all along, and nothing of them is left.
func TestHalfOpenClients(t *testing.T) { // alone: it counts goroutines
	// our own client is asked too, and may be kept waiting
	defer server.SetPingInterval(time.Second)()
	srv := start(t)
	c := connect(t, srv)
	c.put(snapshot("t"), "")
	served(t, c, "t", 50)
	goroutines, heap := runtime.NumGoroutine(), heapInUse()
	said := []string{
		"", // no CONNECT at all
		"CONNECT {\"verbose\":false}\r\n",
		"CONNECT {\"verb",
		"PUB worldengine.v1.main.tow",
		"PUB worldengine.v1.main.town.get _INBOX.in 16777216\r\n{\"townId\":",
		"CONNECT {}\r\nPUB worldengine.v1.main.handoff _INBOX.in 200000\r\n" +
			strings.Repeat("x", 150_000),
		"CONNECT {\"headers\":true}\r\nHPUB worldengine.v1.main.town.get _INBOX.in 12 " +
			"16777216\r\nNATS/1.0\r\n",
		"CONNECT {}\r\nSUB _INBOX.in 1\r\nPUB worldengine.v1.main.town.get _INBOX.in " +
			"14\r\n{\"townId\":\"t\"}\r\nPUB a",
	}
	var open []net.Conn
	for i := range *connectionCount {
		conn := raw(t, srv)
		_, err := io.WriteString(conn, said[i%len(said)])
		require.NoError(t, err)
		open = append(open, conn)
	}
	served(t, c, "t", 200)
	t.Logf("heap with %d half-open connections: %d KiB, %d KiB before", len(open),
		heapInUse()>>10, heap>>10)
	for _, conn := range open {
		requireClosed(t, conn)
	}
	served(t, c, "t", 50)
	requireRest(t, goroutines, heap)
}

// What is no NATS at all ends its own connection.
func TestNoNATSAtAll(t *testing.T) {
	t.Parallel()
	srv := start(t)
	c := connect(t, srv)
	c.put(snapshot("t"), "")
	for _, said := range []string{
		"GET / HTTP/1.1\r\nHost: x\r\n\r\n", "\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03",
		"PUB\r\n", "PUB a -1\r\n",
		"PUB a 99999999999999999999\r\n", "CONNECT {\r\n",
		"SUB " + strings.Repeat("a", 5000) + " 1\r\n",
		"PUB worldengine.v1.main.town.get _INBOX.in 3\r\nabcdef\r\n", "\x00\x00\x00\x00",
		fmt.Sprintf("PUB worldengine.v1.main.handoff _INBOX.in %d\r\n", 16<<20+1),
	} {
		conn := raw(t, srv)
		_, err := io.WriteString(conn, said)
		require.NoError(t, err)
		requireClosed(t, conn)
		served(t, c, "t", 1)
	}
}

// A client that asks for much and never reads is closed when what is written to it has lain too
// long. Others are served, and what waited is given back. How much may wait meanwhile is shown by
// TestPendingOfAClientThatNeverReads: here the client is closed before that is reached.
func TestClientThatNeverReads(t *testing.T) { // alone: it counts goroutines
	defer server.SetWriteDeadline(time.Second)()
	srv := start(t)
	c := connect(t, srv)
	big := snapshot("big")
	big.SideQuests[0].Title = strings.Repeat("t", 400_000)
	c.put(big, "")
	c.put(snapshot("t"), "")
	served(t, c, "t", 50)
	goroutines, heap := runtime.NumGoroutine(), heapInUse()
	conn := raw(t, srv)
	_, err := io.WriteString(conn, "CONNECT {\"verbose\":false}\r\nSUB _INBOX.in 1\r\n")
	require.NoError(t, err)
	sent, most := 0, uint64(0)
	for closed := false; !closed; sent++ {
		require.Less(t, sent, 20_000, "it is still there")
		_, err := io.WriteString(conn, "PUB worldengine.v1.main.town.get _INBOX.in "+
			"16\r\n{\"townId\":\"big\"}\r\n")
		closed = err != nil
		if sent%40 == 0 {
			c.town("t") // as fast as others are served
			most = max(most, heapInUse())
		}
	}
	t.Logf("closed after %d requests for 400 KB each, with at most %d MiB of heap, %d MiB before",
		sent, most>>20, heap>>20)
	require.Less(t, most, heap+256<<20)
	served(t, c, "t", 50)
	requireRest(t, goroutines, heap)
}

// NATS keeps no more than maxPending for a client that never reads, however much it is sent and
// however long it may leave that lying.
func TestPendingOfAClientThatNeverReads(t *testing.T) { // alone: it sets the deadline of servers
	const bound, size, messages = 128 << 20, 1 << 20, 200
	defer server.SetWriteDeadline(time.Minute)()
	srv := start(t)
	c := connect(t, srv)
	conn := raw(t, srv)
	_, err := io.WriteString(conn, "CONNECT {\"verbose\":false}\r\nSUB _INBOX.in 1\r\nPING\r\n")
	require.NoError(t, err)
	payload := make([]byte, size)
	require.EventuallyWithT(t, func(t *assert.CollectT) { // it has subscribed
		require.NoError(t, c.nc.Publish("_INBOX.in", payload))
		require.NoError(t, c.nc.Flush())
		pending, err := srv.MostPending()
		require.NoError(t, err)
		require.Greater(t, pending, 10*size, "a kernel takes less")
	}, 30*time.Second, time.Millisecond)
	for range messages {
		require.NoError(t, c.nc.Publish("_INBOX.in", payload))
	}
	require.NoError(t, c.nc.FlushTimeout(30*time.Second))
	pending, err := srv.MostPending()
	require.NoError(t, err)
	t.Logf("%d MiB are pending", pending>>20)
	require.Greater(t, pending, bound/2)
	require.LessOrEqual(t, pending, bound)
	c.put(snapshot("t"), "")
	served(t, c, "t", 50)
}

// Clients that come, ask, and leave before they are answered leave nothing behind.
func TestClientsThatLeave(t *testing.T) { // alone: it counts goroutines
	srv := start(t)
	c := connect(t, srv)
	at := c.put(snapshot("t"), "")
	served(t, c, "t", 50)
	goroutines, heap := runtime.NumGoroutine(), heapInUse()
	stale := marshalled(t, propose(townReply{TownID: "t", SnapshotHash: strings.Repeat("0", 64)},
		"PROJECT_ADVANCE", "wall"))
	ask := "CONNECT {}\r\nSUB _INBOX.in 1\r\nPUB worldengine.v1.main.town.get _INBOX.in " +
		"14\r\n{\"townId\":\"t\"}\r\n" +
		fmt.Sprintf("PUB worldengine.v1.main.handoff _INBOX.in %d\r\n%s\r\nPUB "+
			"worldengine.v1.main.run.li", len(stale), stale)
	began := time.Now()
	for range 20 * *connectionCount {
		conn := raw(t, srv)
		_, err := io.WriteString(conn, ask)
		require.NoError(t, err)
		require.NoError(t, conn.Close())
	}
	t.Logf("%d clients came and left in %v", 20**connectionCount, time.Since(began))
	served(t, c, "t", 200)
	requireRest(t, goroutines, heap)
	require.Equal(t, at, c.town("t"))
}

// An embedded NATS takes no more connections than it is told, and takes one again when another has
// gone.
func TestMaxConnections(t *testing.T) {
	t.Parallel()
	srv := start(t, func(config *server.Config) { config.MaxConnections = 10 })
	c := connect(t, srv)
	c.put(snapshot("t"), "")
	var open []net.Conn
	for knock(t, srv, &open) {
		require.LessOrEqual(t, len(open), 10, "no connection is refused")
	}
	require.NotEmpty(t, open)
	served(t, c, "t", 20)
	require.NoError(t, open[0].Close())
	require.Eventually(t, func() bool { return knock(t, srv, &open) }, 20*time.Second,
		10*time.Millisecond)
}

// knock connects, and says whether that was accepted.
func knock(t testing.TB, srv *server.Server, open *[]net.Conn) bool {
	conn := raw(t, srv)
	if _, err := io.WriteString(conn, "CONNECT {}\r\nPING\r\n"); err != nil {
		return false
	}
	for lines := bufio.NewScanner(conn); lines.Scan(); {
		switch line := lines.Text(); {
		case strings.HasPrefix(line, "PONG"):
			*open = append(*open, conn)
			return true
		case strings.HasPrefix(line, "-ERR"):
			assert.Contains(t, line, "maximum account active connections exceeded")
			return false
		}
	}
	return false
}
