package natstest

import (
	"fmt"
	"strings"
	"testing"
	"time"

	natsserver "github.com/nats-io/nats-server/v2/server"
	"github.com/nats-io/nats.go"
	"github.com/stretchr/testify/require"
)

// clusterSize is the number of nodes of a Cluster.
const clusterSize = 3

// Cluster is three NATS servers, node-0 to node-2, that end with the test.
type Cluster struct {
	Nodes []*natsserver.Server
	// Conn is connected to one of the nodes, and goes to another one when that ends.
	Conn *nats.Conn

	t       testing.TB
	options []natsserver.Options
}

// StartCluster starts a cluster, and waits until streams can be made on all its nodes.
func StartCluster(t testing.TB) *Cluster {
	t.Helper()
	c := &Cluster{t: t, Nodes: make([]*natsserver.Server, clusterSize)}
	var ports []int
	var routes, urls []string
	for range c.Nodes {
		ports = append(ports, FreePort(t))
		routes = append(routes, fmt.Sprintf("nats://127.0.0.1:%d", ports[len(ports)-1]))
	}
	for i := range c.Nodes {
		c.options = append(c.options, natsserver.Options{
			ServerName: fmt.Sprint("node-", i), JetStream: true, StoreDir: t.TempDir(), Port: FreePort(t),
			Cluster: natsserver.ClusterOpts{Name: "test", Host: "127.0.0.1", Port: ports[i]},
			Routes:  natsserver.RoutesFromStr(strings.Join(routes, ",")),
		})
		c.Start(i)
		urls = append(urls, c.Nodes[i].ClientURL())
	}
	t.Cleanup(func() {
		for _, node := range c.Nodes {
			Stop(node)
		}
	})
	c.Conn = Dial(t, strings.Join(urls, ","), nats.MaxReconnects(-1), nats.ReconnectWait(20*time.Millisecond))
	require.Eventually(t, c.whole, time.Minute, 20*time.Millisecond, "the cluster has a leader")
	return c
}

// Start starts a node with the data that it had when it was stopped.
func (c *Cluster) Start(i int) {
	c.t.Helper()
	c.Nodes[i] = run(c.t, c.options[i])
}

// Data is the directory of a node.
func (c *Cluster) Data(i int) string { return c.options[i].StoreDir }

// whole reports whether a node leads all.
func (c *Cluster) whole() bool {
	for _, node := range c.Nodes {
		if node.JetStreamIsLeader() && len(node.JetStreamClusterPeers()) == len(c.Nodes) {
			return true
		}
	}
	return false
}
