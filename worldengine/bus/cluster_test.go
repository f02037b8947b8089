package bus

import (
	"context"
	"fmt"
	"strings"
	"testing"
	"time"

	natsserver "github.com/nats-io/nats-server/v2/server"
	"github.com/nats-io/nats.go"
	"github.com/stretchr/testify/require"

	"worldengine/worldengine/natstest"
	"worldengine/worldengine/wire"
)

// startCluster starts three NATS servers, and returns them with a connection to all.
func startCluster(t *testing.T) ([]*natsserver.Server, *nats.Conn) {
	t.Helper()
	const size = 3
	var ports []int
	var routes, urls []string
	for range size {
		ports = append(ports, natstest.FreePort(t))
		routes = append(routes, fmt.Sprintf("nats://127.0.0.1:%d", ports[len(ports)-1]))
	}
	servers := make([]*natsserver.Server, size)
	for i := range servers {
		servers[i] = natstest.Start(t, &natsserver.Options{
			ServerName: fmt.Sprint("node-", i), JetStream: true, StoreDir: t.TempDir(),
			Cluster: natsserver.ClusterOpts{Name: "test", Host: "127.0.0.1", Port: ports[i]},
			Routes:  natsserver.RoutesFromStr(strings.Join(routes, ",")),
		})
		urls = append(urls, servers[i].ClientURL())
	}
	nc, err := nats.Connect(strings.Join(urls, ","), nats.MaxReconnects(-1),
		nats.ReconnectWait(20*time.Millisecond))
	require.NoError(t, err)
	t.Cleanup(nc.Close)
	require.Eventually(t, func() bool {
		for _, s := range servers {
			if s.JetStreamIsLeader() && len(s.JetStreamClusterPeers()) == size {
				return true
			}
		}
		return false
	}, patience, 20*time.Millisecond, "the cluster has a leader")
	return servers, nc
}

// In a cluster with racing sinks the node that leads the stream is lost: no event is doubled, lost,
// or out of order.
func TestSink_Cluster(t *testing.T) {
	t.Parallel()
	servers, nc := startCluster(t)
	w := replicatedOn(t, nc, len(servers))
	w.write(0, 100)
	first, _ := w.run(impatient)
	second, _ := w.run(impatient)
	w.wait(first, 100)
	w.wait(second, 100)
	w.requireImage(100)

	leader := w.stream().CachedInfo().Cluster.Leader
	for _, s := range servers {
		if s.Name() == leader {
			natstest.Stop(s)
		}
	}
	w.answers(func(ctx context.Context) bool {
		info, err := w.log.Info(ctx)
		return err == nil && info.Cluster.Leader != "" && info.Cluster.Leader != leader
	}, "the log has a leader")
	w.write(100, 160)
	w.wait(first, 160)
	w.wait(second, 160)
	w.answers(func(ctx context.Context) bool {
		stream, err := w.js.Stream(ctx, wire.EventStream("main"))
		return err == nil && stream.CachedInfo().Cluster.Leader != ""
	}, "the stream has a leader")
	w.requireImage(160)
}
