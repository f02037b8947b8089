package fsck

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/nats-io/nats.go/jetstream"
	"github.com/stretchr/testify/require"

	"worldengine/worldengine/internal/store/commitlog"
	"worldengine/worldengine/internal/store/records"
	"worldengine/worldengine/internal/testkit/natstest"
)

// A node starts with a changed file of its messages, and then without that file. NATS does not fetch
// them again. The comparison names the node and the messages, and nothing once the node was emptied.
func TestReplicas_Damaged(t *testing.T) {
	t.Parallel()
	cluster := natstest.StartCluster(t)
	js, err := jetstream.New(cluster.Conn)
	require.NoError(t, err)
	stream, err := js.CreateStream(t.Context(), jetstream.StreamConfig{Name: "S",
		Subjects: []string{"s.>"}, Replicas: len(cluster.Nodes), MaxMsgsPerSubject: 5})
	require.NoError(t, err)
	large := make([]byte, 500<<10)
	for n := range 12 { // a block of NATS has 4 MiB
		_, err := js.Publish(t.Context(), fmt.Sprint("s.", n), large)
		require.NoError(t, err)
	}
	compared := func() *Report {
		info, err := stream.Info(t.Context())
		require.NoError(t, err)
		c := &worldChecker{nc: cluster.Conn, options: Options{Replicas: true, MaxFindings: 10},
			log:    &records.Log{Log: &commitlog.Log{Stream: stream, Store: commitlog.StreamStore{Stream: stream}}},
			report: &Report{LogEnd: info.State.LastSeq}}
		require.NoError(t, c.compareReplicas(t.Context()))
		require.Empty(t, c.report.Notes)
		return c.report
	}
	require.Empty(t, compared().Findings)

	follower := 0
	for cluster.Nodes[follower].Name() == stream.CachedInfo().Cluster.Leader {
		follower++
	}
	name, data := fmt.Sprint("node-", follower), filepath.Join(cluster.Data(follower), "jetstream")
	block := filepath.Join(data, "$G/streams/S/msgs/1.blk")
	damaged := func(damage func(), lacks string) {
		natstest.Stop(cluster.Nodes[follower])
		damage()
		cluster.Start(follower)
		report := compared()
		require.Len(t, report.Findings, 1)
		require.Contains(t, report.Findings[0].What, name)
		require.Contains(t, report.Findings[0].Got, lacks)
		require.Contains(t, report.Advice(), report.adviceReplicas())
		require.Contains(t, report.adviceReplicas(), "empty the node "+name)
	}
	damaged(func() {
		bytes, err := os.ReadFile(block)
		require.NoError(t, err)
		bytes[2*len(large)]++
		require.NoError(t, os.WriteFile(block, bytes, 0o600))
	}, "1 missing: 2")
	damaged(func() { require.NoError(t, os.Remove(block)) }, "8 missing: 1 to 8")

	natstest.Stop(cluster.Nodes[follower])
	require.NoError(t, os.RemoveAll(data))
	cluster.Start(follower)
	require.Eventually(t, func() bool {
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		info, err := stream.Info(ctx)
		return err == nil && len(info.Cluster.Replicas) == 2 &&
			info.Cluster.Replicas[0].Current && info.Cluster.Replicas[1].Current
	}, time.Minute, 20*time.Millisecond)
	require.Empty(t, compared().Findings)
}

// A log whose nodes each lack something must not lose more of it.
func TestReplicas_Advice(t *testing.T) {
	t.Parallel()
	whole, lacks := commitlog.Replica{Node: "a"}, commitlog.Replica{Node: "b", LackCount: 1}
	offline := commitlog.Replica{Node: "c", SkipReason: "it is offline"}
	for want, replicas := range map[string][]commitlog.Replica{
		"":                                       {whole, whole, offline},
		"findings in replicas: empty the node b": {whole, lacks, offline},
		"findings in replicas: no node has the whole log, so EMPTY NONE": {lacks, lacks, offline},
	} {
		require.Contains(t, (&Report{Replicas: replicas}).adviceReplicas(), want)
	}
	require.Empty(t, (&Report{Replicas: []commitlog.Replica{whole, whole}}).adviceReplicas())
}

func TestReplicas_One(t *testing.T) {
	t.Parallel()
	js, err := jetstream.New(natstest.Connect(t))
	require.NoError(t, err)
	stream, err := js.CreateStream(t.Context(), jetstream.StreamConfig{Name: "S"})
	require.NoError(t, err)
	c := &worldChecker{nc: js.Conn(), options: Options{Replicas: true}, log: &records.Log{Log: &commitlog.Log{Stream: stream}},
		report: new(Report)}
	require.NoError(t, c.compareReplicas(t.Context()))
	require.Contains(t, c.report.Notes[0], "the log has one replica")
	require.Empty(t, c.report.Findings)
}
