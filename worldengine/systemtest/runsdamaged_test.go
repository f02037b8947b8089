package systemtest_test

import (
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"worldengine/worldengine"
	"worldengine/worldengine/runs"
	"worldengine/worldengine/wire"
)

// flipInEvents flips a bit in each of some run events.
func (w *checkedWorld) flipInEvents(seqs ...uint64) {
	w.t.Helper()
	w.flipIn(w.block(wire.EventStream("main")), seqs...)
}

// pages returns the ids of the runs of a list of so many on each page, the oldest first. The list
// that begins with the newest has the same runs.
func (w *checkedWorld) pages(filter runs.RunFilter, limit int) []string {
	w.t.Helper()
	newest := w.pagesOf(filter, limit)
	filter.Oldest = true
	oldest := w.pagesOf(filter, limit)
	slices.Reverse(newest)
	require.Equal(w.t, oldest, newest)
	return oldest
}

func (w *checkedWorld) pagesOf(filter runs.RunFilter, limit int) []string {
	w.t.Helper()
	ids := []string{}
	for after, next := uint64(0), uint64(1); next > 0; after = next {
		page, err := w.engine.Runs().List(w.t.Context(), filter, after, limit)
		require.NoError(w.t, err)
		for i := range page.Runs {
			ids = append(ids, page.Runs[i].RunID)
		}
		next = page.Next
		require.True(w.t, next == 0 || after == 0 || next > after == filter.Oldest,
			"the list goes on")
	}
	return ids
}

// Damage of the events of a run takes no other run off the list. NATS counts events that were
// changed on its disk, and delivers neither those nor, at first, what is behind them.
func TestDamagedRunEventsAreListedOver(t *testing.T) {
	for name, c := range map[string]struct {
		damaged []uint64 // each run has ten events
		left    []int    // the runs that are on the list
	}{
		"in the middle of a run":    {[]uint64{15}, []int{0, 1, 2}},
		"the first event of a run":  {[]uint64{11}, []int{0, 2}},
		"the first of all":          {[]uint64{1}, []int{1, 2}},
		"many, in different places": {[]uint64{5, 6, 11, 13, 22}, []int{0, 2}},
		"the last event of a run":   {[]uint64{20}, []int{0, 2}},
		"all events of a run": {[]uint64{11, 12, 13, 14, 15, 16, 17, 18, 19, 20},
			[]int{0, 2}},
	} {
		t.Run(name, func(t *testing.T) {
			w := newCheckedWorld(t, worldengine.Config{})
			page, want := w.talks(3), []string{}
			for _, i := range c.left {
				want = append(want, page[i])
			}
			w.flipInEvents(c.damaged...)
			require.Equal(t, want, w.pages(runs.RunFilter{}, 10))
			require.Equal(t, want, w.pages(runs.RunFilter{Towns: []string{"t"}}, 1), "a page each")
		})
	}
}

// Of a run whose last event is damaged nobody can tell how it stands, until the stream is made anew.
func TestDamagedRunIsToldApartFromAnUnknownOne(t *testing.T) {
	for name, damaged := range map[string][]uint64{
		"the last event": {20}, "all events": {11, 12, 13, 14, 15, 16, 17, 18, 19, 20},
	} {
		t.Run(name, func(t *testing.T) {
			w := newCheckedWorld(t, worldengine.Config{})
			page := w.talks(3)
			want, err := w.engine.Runs().Get(t.Context(), page[1])
			require.NoError(t, err)
			w.flipInEvents(damaged...)
			_, err = w.engine.Runs().Get(t.Context(), page[1])
			require.ErrorIs(t, err, runs.ErrRunDamaged)
			_, err = w.engine.Runs().Events(t.Context(), page[1], 5, 10)
			require.ErrorIs(t, err, runs.ErrRunDamaged)
			_, err = w.engine.Runs().Get(t.Context(), "unknown")
			require.ErrorIs(t, err, runs.ErrUnknownRun)
			reply, err := w.nc.Request("worldengine.v1.main.run.get",
				[]byte(`{"runId":"`+page[1]+`"}`),
				time.Minute)
			require.NoError(t, err)
			require.Equal(t, "500", reply.Header.Get("Nats-Service-Error-Code"))
			require.Contains(t, string(reply.Data), `"RUN_DAMAGED"`)

			w.derivedAnew()
			w.followed()
			got, err := w.engine.Runs().Get(t.Context(), page[1])
			require.NoError(t, err)
			require.Equal(t, want, got)
		})
	}
}
