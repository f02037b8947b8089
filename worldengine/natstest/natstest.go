// Package natstest starts a real NATS with JetStream for a test.
package natstest

import (
	"fmt"
	"math/rand/v2"
	"net"
	"sync/atomic"
	"testing"
	"time"

	natsserver "github.com/nats-io/nats-server/v2/server"
	"github.com/nats-io/nats.go"
	"github.com/stretchr/testify/require"
)

// Start starts a NATS server on 127.0.0.1, with options, and ends it with the test.
func Start(t testing.TB, options *natsserver.Options) *natsserver.Server {
	t.Helper()
	ns := Run(t, options)
	t.Cleanup(func() { Stop(ns) })
	return ns
}

// Run is Start for a caller that calls Stop itself. Without a port the server listens on a free
// one, which options have then: the next Run with them is at the same address.
func Run(t testing.TB, options *natsserver.Options) *natsserver.Server {
	t.Helper()
	own := *options
	own.Host, own.NoSigs = "127.0.0.1", true
	if own.Port == 0 {
		own.Port = natsserver.RANDOM_PORT
	}
	ns, err := natsserver.NewServer(&own)
	require.NoError(t, err)
	ns.Start()
	require.True(t, ns.ReadyForConnections(30*time.Second))
	options.Port = own.Port
	return ns
}

// FreeAddress is the address of a FreePort.
func FreeAddress(t testing.TB) string {
	t.Helper()
	return fmt.Sprintf("127.0.0.1:%d", FreePort(t))
}

// FreePort finds a port that a server can have now and again after each restart: one below those
// that the kernel gives to every process that connects. It gives none twice in a process.
func FreePort(t testing.TB) int {
	t.Helper()
	for range 100 {
		port := 12000 + int(nextPort.Add(1)%18000)
		listener, err := net.Listen("tcp", fmt.Sprintf("127.0.0.1:%d", port))
		if err == nil {
			defer listener.Close()
			return port
		}
	}
	t.Fatal("no port is free")
	return 0
}

// nextPort begins at a port of this process's own.
var nextPort atomic.Uint32

func init() { nextPort.Store(rand.Uint32N(18000)) }

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
	nc, err := nats.Connect(Start(t, options).ClientURL())
	require.NoError(t, err)
	t.Cleanup(nc.Close)
	return nc
}
