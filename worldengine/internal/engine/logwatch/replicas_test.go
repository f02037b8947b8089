package logwatch

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/nats-io/nats.go/jetstream"
	"github.com/stretchr/testify/require"

	"worldengine/worldengine/internal/kit/layout"
	"worldengine/worldengine/internal/store/commitlog"
	"worldengine/worldengine/internal/testkit/natstest"
)

// A node that has lost a file comes to lead the log. It is found, an intact node leads instead of it,
// and then the log stays there.
func TestReplicas_LeaderIsDamaged(t *testing.T) {
	t.Parallel()
	cluster := natstest.StartCluster(t)
	js, err := jetstream.New(cluster.Conn)
	require.NoError(t, err)
	name := layout.LogStream("main")
	elections, err := cluster.Conn.SubscribeSync(commitlog.ElectionSubject("main"))
	require.NoError(t, err)
	stream, err := js.CreateStream(t.Context(), jetstream.StreamConfig{Name: name,
		Subjects: []string{"s.>"}, Replicas: len(cluster.Nodes)})
	require.NoError(t, err)
	for n := range 12 { // a block of NATS has 8 MiB
		_, err := js.Publish(t.Context(), fmt.Sprint("s.", n), make([]byte, 900<<10))
		require.NoError(t, err)
	}
	r := &Replicas{js: js}
	check := func(onlyLeader bool) (moved bool) {
		require.Eventually(t, func() bool { // until the leader has heard all nodes
			moved, err = r.compareCounts(t.Context(), stream, onlyLeader)
			return !errors.Is(err, commitlog.ErrUncounted)
		}, time.Minute, 100*time.Millisecond)
		require.NoError(t, err)
		return moved
	}
	require.False(t, check(false))
	require.Empty(t, r.Damaged())

	natstest.Stop(cluster.Nodes[0])
	require.NoError(t, os.Remove(filepath.Join(cluster.Data(0), "jetstream/$G/streams", name, "msgs/1.blk")))
	cluster.Start(0)
	const damaged = "node-0"
	require.Eventually(t, func() bool { // the node has to come up, and to catch up
		return commitlog.MoveLeader(t.Context(), js, stream, damaged) == nil
	}, time.Minute, 100*time.Millisecond)
	require.True(t, check(true))
	require.Contains(t, r.Damaged(), damaged+" (9 missing: 1 to 9)")
	alerts := r.damaged.Load().alerts()
	require.Len(t, alerts, 1)
	require.Contains(t, alerts[0].Message, "The node "+damaged+" of NATS lacks")

	nodes, err := commitlog.Nodes(t.Context(), stream)
	require.NoError(t, err)
	require.NotEqual(t, damaged, nodes[0].Name)
	var elected struct{ Leader string }
	for elected.Leader != nodes[0].Name { // a node that has just started may not know yet who listens
		msg, err := elections.NextMsg(time.Minute)
		require.NoError(t, err)
		require.NoError(t, json.Unmarshal(msg.Data, &elected))
	}
	require.False(t, check(false)) // of a follower that lacks messages now
	require.Contains(t, r.Damaged(), damaged)
}

// NATS may move the leader although it has not answered: the next comparison reports that, once.
func TestReplicas_MoveWithoutAnswer(t *testing.T) {
	t.Parallel()
	js, err := jetstream.New(natstest.Connect(t))
	require.NoError(t, err)
	stream, err := js.CreateStream(t.Context(), jetstream.StreamConfig{Name: layout.LogStream("main")})
	require.NoError(t, err)
	r := &Replicas{js: js}
	damaged, whole := commitlog.Replica{Node: "node-0", LackCount: 1}, commitlog.Replica{Node: "node-1"}
	over, cancel := context.WithCancel(t.Context())
	cancel()
	_, moved, err := r.leadByBest(over, stream, []commitlog.Replica{damaged, whole})
	require.ErrorIs(t, err, context.Canceled)
	require.False(t, moved)
	for _, first := range []bool{true, false} {
		_, moved, err = r.leadByBest(t.Context(), stream, []commitlog.Replica{whole, damaged})
		require.NoError(t, err)
		require.Equal(t, first, moved)
	}
}
