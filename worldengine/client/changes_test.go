package client_test

import (
	"context"
	"iter"
	"strconv"
	"testing"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/stretchr/testify/require"

	"worldengine/worldengine/client"
	"worldengine/worldengine/internal/core/town"
	"worldengine/worldengine/internal/core/town/towntest"
	"worldengine/worldengine/messages"
)

// put sets the day of a town, which it creates if it is missing.
func put(t *testing.T, c *client.Client, townID string, day int64) *client.Town {
	t.Helper()
	state := towntest.Threatened(func(s *town.Snapshot) { s.TownID, s.Day = townID, day })
	how := client.Put{}
	if at, err := c.Town(t.Context(), townID); err == nil {
		how.Expected = at.SnapshotHash
	}
	at, err := c.PutTown(t.Context(), state.Snapshot, how)
	require.NoError(t, err)
	return at
}

// changesBehind follows the changes after a state of a town until the test ends. It returns a function
// that checks the next one.
func changesBehind(
	t *testing.T, c *client.Client, townID string, after *client.Town, actorID string,
) (is func(at *client.Town)) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	next, stop := iter.Pull2(c.Changes(ctx, client.Follow{
		TownID: townID, After: strconv.FormatUint(after.Revision, 10),
	}))
	t.Cleanup(func() { stop(); cancel() })
	return func(at *client.Town) {
		t.Helper()
		change, err, ok := next()
		require.True(t, ok, "no change came")
		require.NoError(t, err)
		require.NotEmpty(t, change.At)
		change.At = ""
		require.Equal(t, client.Change{TownID: at.TownID, Revision: messages.Revision{
			Revision: at.Revision, Cause: "put", ActorID: actorID, Epoch: at.DecisionEpoch,
			Hash: at.SnapshotHash,
		}}, change)
	}
}

// Changes without a run come in order, even if the link was lost; changes of a run do not come.
func TestChanges(t *testing.T) {
	t.Parallel()
	w := serve(t)
	c := w.join("main")
	first := put(t, c, "a", 1)
	second := put(t, c, "b", 1)
	var l link
	away, err := client.Connect(w.URL(), client.Options{NATS: []nats.Option{
		nats.ReconnectWait(5 * time.Millisecond), nats.ReconnectJitter(0, 0),
		nats.SetCustomDialer(&l),
	}})
	require.NoError(t, err)
	t.Cleanup(away.Close)
	all, one := changesBehind(t, away, "", first, ""), changesBehind(t, away, "b", first, "")
	all(second)
	one(second)
	all(put(t, c, "a", 2))
	_, err = c.Send(t.Context(), talk(t, c, "a"))
	require.NoError(t, err)
	l.set(true)
	var missed []*client.Town
	for day := range int64(5) {
		missed = append(missed, put(t, c, "b", 2+day))
	}
	l.set(false)
	for _, at := range missed {
		all(at)
		one(at)
	}
	all(put(t, c, "new", 1))
	one(put(t, c, "b", 9))
}
