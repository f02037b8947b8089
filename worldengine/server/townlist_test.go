package server_test

import (
	"fmt"
	"testing"

	"github.com/stretchr/testify/require"

	"worldengine/schemas"
	"worldengine/worldengine/wire"
)

// A list of more towns than NATS is asked for at once has each town once, as it is now: also those
// that changed after the last town of the first batch.
func TestListOfManyTowns(t *testing.T) {
	t.Parallel()
	c := connect(t, start(t))
	const first, towns = 1000, 1010
	inbox, err := c.nc.SubscribeSync(c.nc.NewInbox())
	require.NoError(t, err)
	for i := range first {
		body := mustJSON(t, putRequest(snapshot(fmt.Sprintf("town-%04d", i)), ""))
		require.NoError(t, c.nc.PublishRequest(wire.Subject(c.world, "town.put"),
			inbox.Subject, body))
	}
	for range first {
		_, err := inbox.NextMsgWithContext(t.Context())
		require.NoError(t, err)
	}
	want := map[string]townReply{}
	for i := first; i < towns; i++ {
		at := c.put(snapshot(fmt.Sprintf("town-%04d", i)), "")
		want[at.TownID] = at
	}
	for id, at := range want {
		next := snapshot(id)
		next.Day++
		want[id] = c.put(next, at.SnapshotHash)
	}
	page := call[struct{ Towns []summary }](c, "town.list", schemas.TownListReply, map[string]any{})
	require.Len(t, page.Towns, towns)
	for i, town := range page.Towns {
		require.Equal(t, fmt.Sprintf("town-%04d", i), town.TownID)
		if now, ok := want[town.TownID]; ok {
			require.Equal(t, now.SnapshotHash, town.SnapshotHash)
			require.Equal(t, now.DecisionEpoch, town.DecisionEpoch)
		}
	}
}
