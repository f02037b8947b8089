package alerts_test

import (
	"context"
	"strconv"
	"testing"

	"github.com/stretchr/testify/require"

	"worldengine/runevents"
	"worldengine/worldengine/wire"
)

// Pages have every alert once, the newest first, whatever their size.
func TestPagesOfAlerts(t *testing.T) {
	t.Parallel()
	w := newAlertWorld(t)
	a := w.open()
	a.Start()
	for i := range 7 {
		a.Raise(aboutHandoff("h" + strconv.Itoa(i)))
	}
	a.Close(t.Context())
	for _, limit := range []int{1, 2, 3, 6, 7, 100} {
		var found []string
		for after, more := uint64(0), true; more; {
			page, err := a.List(t.Context(), after, limit)
			require.NoError(t, err)
			require.LessOrEqual(t, len(page.Alerts), limit)
			for _, stored := range page.Alerts {
				require.Equal(t, stored.Alert.ID(), stored.ID)
				found = append(found, stored.HandoffID)
			}
			after, more = page.Next, page.Next > 0
		}
		require.Equal(t, []string{"h6", "h5", "h4", "h3", "h2", "h1", "h0"}, found, "limit %d", limit)
	}
}

// What the stream has already is not raised again; a stream that is gone has none.
func TestAlertsAreRecalled(t *testing.T) {
	t.Parallel()
	w := newAlertWorld(t)
	a := w.open()
	a.Start()
	aboutRun := func(id string) runevents.Alert {
		return runevents.Alert{Code: runevents.ApplyInDoubt, RunID: id, Message: "In doubt."}
	}
	for _, id := range []string{"r1", "r2", "r3"} {
		a.Raise(aboutRun(id))
	}
	a.Close(t.Context())
	next := w.open()
	require.NoError(t, next.Recall(t.Context(), 2))
	raised := int64(0)
	for id, fresh := range map[string]int64{"r1": 1, "r2": 0, "r3": 0, "r4": 1} {
		for range 2 {
			next.RaiseOnce(aboutRun(id))
		}
		raised += fresh
		counts, _ := next.Stats()
		require.Equal(t, raised, counts[runevents.ApplyInDoubt], id)
	}
	require.NoError(t, w.js.DeleteStream(t.Context(), wire.AlertStream("main")))
	page, err := a.List(t.Context(), 0, 10)
	require.NoError(t, err)
	require.Empty(t, page.Alerts)

	over, cancel := context.WithCancel(t.Context())
	cancel()
	w.js.Conn().Close()
	require.ErrorIs(t, next.Recall(over, 2), context.Canceled)
}
