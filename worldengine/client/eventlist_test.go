package client_test

import (
	"errors"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"worldengine/worldengine/client"
	"worldengine/worldengine/messages"
	"worldengine/worldengine/wire"
)

// EventList returns the commits behind a cursor, waits longer than the client's Timeout for them,
// and passes on why there are none.
func TestClient_EventList(t *testing.T) {
	t.Parallel()
	w := serve(t)
	c := w.join("main")
	found(t, c, "t")
	page, err := c.EventList(t.Context(), messages.EventListRequest{After: "0", TownID: "t"})
	require.NoError(t, err)
	require.Len(t, page.Commits, 1)
	require.Equal(t, []any{"1", "put", "t"},
		[]any{page.Cursor, page.Commits[0].Cause, page.Commits[0].TownID})

	c.Timeout = 5 * time.Second
	began := time.Now()
	none, err := c.EventList(t.Context(), messages.EventListRequest{After: "1", WaitMs: 5500})
	require.NoError(t, err)
	require.GreaterOrEqual(t, time.Since(began), 5500*time.Millisecond)
	require.Equal(t, messages.EventListReply{Commits: []messages.Commit{}, Cursor: "1"}, none)

	_, err = c.EventList(t.Context(), messages.EventListRequest{After: "2"})
	refused, ok := errors.AsType[*client.ReplyError](err)
	require.True(t, ok, err)
	require.Equal(t, wire.CodeInvalidCursor, wire.Code(refused.Code))
	w.stop()
	_, err = c.EventList(t.Context(), messages.EventListRequest{After: "1"})
	_, ok = errors.AsType[*client.UnavailableError](err)
	require.True(t, ok, err)
}
