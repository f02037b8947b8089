package commitlog

import (
	"testing"

	"github.com/nats-io/nats.go/jetstream"
	"github.com/stretchr/testify/require"
)

// A replica that was killed may have to cut off the end of a block, which NATS cannot do in a
// compressed one. TestNodesAreKilled of package cluster kills replicas.
func TestNothingIsCompressedInACluster(t *testing.T) {
	t.Parallel()
	for _, c := range []Compression{"", CompressEvents, CompressAll} {
		for replicas, compressed := range map[int]bool{0: true, 1: true, 3: false, 5: false} {
			s := Settings{Compress: c}.Or(DefaultSettings())
			events := EventStream("main", s, replicas)
			log := LogStream("main", s, replicas)
			all := compressed && c == CompressAll
			require.Equal(t, []bool{compressed, all}, []bool{
				events.Compression == jetstream.S2Compression,
				log.Compression == jetstream.S2Compression,
			}, "%q, %d replicas", c, replicas)
		}
	}
}
