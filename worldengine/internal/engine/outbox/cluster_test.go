package outbox

import (
	"context"
	"testing"

	"worldengine/worldengine/internal/testkit/natstest"
	"worldengine/worldengine/wire"
)

// In a cluster with racing relays the node that leads the stream is lost: no event is doubled, lost,
// or out of order.
func TestRelay_Cluster(t *testing.T) {
	t.Parallel()
	cluster := natstest.StartCluster(t)
	w := replicatedOn(t, cluster.Conn, len(cluster.Nodes))
	w.write(0, 100)
	first, _ := w.run(impatient)
	second, _ := w.run(impatient)
	w.wait(first, 100)
	w.wait(second, 100)
	w.requireImage(100)

	leader := w.stream().CachedInfo().Cluster.Leader
	for _, s := range cluster.Nodes {
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
