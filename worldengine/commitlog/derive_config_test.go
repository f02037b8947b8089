package commitlog

import (
	"testing"
	"time"

	"github.com/nats-io/nats.go/jetstream"
	"github.com/stretchr/testify/require"
)

// A replica that was killed may have to cut off the end of a block, which NATS cannot do in a
// compressed one. TestNodesAreKilled of package cluster kills replicas.
func TestNothingIsCompressedInACluster(t *testing.T) {
	t.Parallel()
	for replicas, want := range map[int]jetstream.StoreCompression{
		0: jetstream.S2Compression, 1: jetstream.S2Compression,
		3: jetstream.NoCompression, 5: jetstream.NoCompression,
	} {
		receipts, events := DerivedStreams("main", DefaultSettings(), replicas)
		require.Equal(t, want, events.Compression, "%d replicas", replicas)
		require.Equal(t, jetstream.NoCompression, receipts.Compression)
		log := StreamConfig("main", 10, time.Hour, replicas)
		require.Equal(t, jetstream.NoCompression, log.Compression)
	}
}
