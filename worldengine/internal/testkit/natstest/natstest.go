// Package natstest starts a real NATS with JetStream for a test.
package natstest

import (
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	natsserver "github.com/nats-io/nats-server/v2/server"
	"github.com/nats-io/nats.go"
	"github.com/stretchr/testify/require"

	"worldengine/worldengine/internal/kit/platform"
)

// Start starts a NATS server on 127.0.0.1, with options, and ends it with the test. Without a port
// the server listens on a free one.
func Start(t testing.TB, options *natsserver.Options) *natsserver.Server {
	t.Helper()
	ns := run(t, *options)
	t.Cleanup(func() { Stop(ns) })
	return ns
}

// Run is Start for a caller that calls Stop itself. Options without a port get a FreePort, so the
// next Run with them is at the same address.
func Run(t testing.TB, options *natsserver.Options) *natsserver.Server {
	t.Helper()
	if options.Port == 0 {
		options.Port = FreePort(t)
	}
	return run(t, *options)
}

func run(t testing.TB, options natsserver.Options) *natsserver.Server {
	t.Helper()
	options.Host, options.NoSigs = "127.0.0.1", true
	if options.Port == 0 {
		options.Port = natsserver.RANDOM_PORT
	}
	ns, err := natsserver.NewServer(&options)
	require.NoError(t, err)
	ns.Start()
	require.True(t, ns.ReadyForConnections(30*time.Second))
	return ns
}

// FreeAddress is the address of a FreePort.
func FreeAddress(t testing.TB) string {
	t.Helper()
	return fmt.Sprintf("127.0.0.1:%d", FreePort(t))
}

// FreePort finds a port that a server can have now and again after each restart: one below those
// that the kernel gives to every process that connects. No other test gets it, of any process: a
// locked file claims it until the test ends.
func FreePort(t testing.TB) int {
	t.Helper()
	for range 1000 {
		port := 12000 + rand.IntN(18000)
		if claimed(t, port) {
			return port
		}
	}
	t.Fatal("no port is free")
	return 0
}

// claimed claims a port on which nothing listens, and reports whether no other test has it.
func claimed(t testing.TB, port int) bool {
	t.Helper()
	claims := filepath.Join(os.TempDir(), "worldengine-ports")
	require.NoError(t, os.MkdirAll(claims, 0o700))
	lock, err := platform.Lock(filepath.Join(claims, fmt.Sprint(port)))
	if errors.Is(err, platform.ErrLocked) {
		return false
	}
	require.NoError(t, err)
	// A listener would stay open in a process that another test starts at this moment.
	conn, err := net.Dial("tcp", fmt.Sprintf("127.0.0.1:%d", port))
	if err != nil {
		t.Cleanup(func() { _ = lock.Close() })
		return true
	}
	require.NoError(t, conn.Close())
	require.NoError(t, lock.Close())
	return false
}

// Stop ends a server and waits for its end.
func Stop(ns *natsserver.Server) {
	ns.Shutdown()
	ns.WaitForShutdown()
}

// Connect starts a NATS server with JetStream and files of its own, after change, and returns a
// connection to it. Both end with the test.
func Connect(t testing.TB, change ...func(*natsserver.Options)) *nats.Conn {
	t.Helper()
	options := &natsserver.Options{JetStream: true, StoreDir: t.TempDir()}
	for _, c := range change {
		c(options)
	}
	return Dial(t, Start(t, options).ClientURL())
}

// Dial connects to a server. The connection ends with the test.
func Dial(t testing.TB, url string, options ...nats.Option) *nats.Conn {
	t.Helper()
	nc, err := TryDial(url, options...)
	require.NoError(t, err)
	t.Cleanup(nc.Close)
	return nc
}

// TryDial connects to a server, which may refuse that, and again if a busy machine takes longer than NATS lets a
// connection sign in, or the server closed the connection before the client had read why.
func TryDial(url string, options ...nats.Option) (nc *nats.Conn, err error) {
	options = append([]nats.Option{nats.Timeout(20 * time.Second)}, options...)
	for range 5 {
		nc, err = nats.Connect(url, options...)
		if err == nil || !isClosed(err) && !strings.Contains(err.Error(), "Authentication Timeout") &&
			!strings.Contains(err.Error(), "got 'PING'") { // NATS asks after 2 s whether the client is there
			break
		}
	}
	return nc, err
}

func isClosed(err error) bool {
	return errors.Is(err, io.EOF) || errors.Is(err, syscall.EPIPE) || errors.Is(err, syscall.ECONNRESET)
}
