package server_test

import (
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"worldengine/worldengine/wire"
)

// Nothing is kept of towns that there are not and that clients ask about: what thousands leave in
// the heap is less than a short entry of each. TestManyTowns of handoffd measures the whole
// process, with far more of them.
func TestNothingIsKeptOfUnknownTowns(t *testing.T) { // alone: it measures the heap
	const towns, most = 2_000, 100
	c := connect(t, start(t))
	asked := 0
	ask := func() {
		replies, err := c.nc.SubscribeSync(c.nc.NewInbox())
		require.NoError(t, err)
		defer func() { require.NoError(t, replies.Unsubscribe()) }()
		for n := range towns {
			require.NoError(t, c.nc.PublishRequest(wire.Subject(c.world, wire.TownGet),
				replies.Subject, fmt.Appendf(nil, `{"townId":"town %d"}`, asked)))
			asked++
			if n%16 == 15 {
				for range 16 {
					reply, err := replies.NextMsg(20 * time.Second)
					require.NoError(t, err)
					require.Equal(t, 404, c.failureOf(reply).Status)
				}
			}
		}
	}
	inUse := func() int64 {
		heapInUse() // a pool lets its memory go with the second collection
		return int64(heapInUse())
	}
	ask() // what is made once is there
	before := inUse()
	ask()
	after := inUse()
	t.Logf("heap before %d bytes, after %d", before, after)
	require.Less(t, after-before, int64(towns*most))
}
