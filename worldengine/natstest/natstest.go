// Package natstest starts a real NATS with JetStream for a test.
package natstest

import (
	"testing"
	"time"

	natsserver "github.com/nats-io/nats-server/v2/server"
	"github.com/nats-io/nats.go"
	"github.com/stretchr/testify/require"
)

// Connect starts a NATS server with files of its own on a free port, and with what change says, ends it
// with the test, and returns a connection to it.
func Connect(t testing.TB, change ...func(*natsserver.Options)) *nats.Conn {
	t.Helper()
	options := &natsserver.Options{
		Host: "127.0.0.1", Port: natsserver.RANDOM_PORT, JetStream: true, StoreDir: t.TempDir(), NoSigs: true,
	}
	for _, c := range change {
		c(options)
	}
	ns, err := natsserver.NewServer(options)
	require.NoError(t, err)
	ns.Start()
	t.Cleanup(ns.Shutdown)
	require.True(t, ns.ReadyForConnections(20*time.Second))
	nc, err := nats.Connect(ns.ClientURL())
	require.NoError(t, err)
	t.Cleanup(nc.Close)
	return nc
}
