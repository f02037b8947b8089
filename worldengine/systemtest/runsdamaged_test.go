package systemtest_test

import (
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"worldengine/handoff"
	"worldengine/worldengine"
	"worldengine/worldengine/runs"
	"worldengine/worldengine/town"
	"worldengine/worldengine/town/towntest"
)

// talks has handoffs of one town executed, each a run of ten events, and returns their runs.
func (w *checkedWorld) talks(n int) []string {
	w.t.Helper()
	state := towntest.Threatened(func(s *town.Snapshot) { s.TownID = "t" })
	w.put(state, "")
	var page []string
	for range n {
		h := w.send(proposal(state, handoff.TalkToTownsfolk, "casual"), handoff.Executed)
		receipt, err := w.engine.Receipt(w.t.Context(), h.Proposal.TownID, h.IdempotencyKey)
		require.NoError(w.t, err)
		page = append(page, receipt.RunID)
		next, reason := town.DefaultRules().Apply(state.Snapshot, &h.Proposal)
		require.Empty(w.t, reason)
		state = next
	}
	return page
}

// pages returns the ids of a list's runs with so many on each page, the oldest first. The list that
// begins with the newest has the same runs.
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

// A damaged record of a run removes no other run from the list. The run itself differs from an
// unknown one as long as the index has it.
func TestDamagedRuns(t *testing.T) {
	for name, c := range map[string]struct{ damaged, left []int }{
		"in the middle":      {[]int{1}, []int{0, 2, 3}},
		"the first":          {[]int{0}, []int{1, 2, 3}},
		"several":            {[]int{0, 2}, []int{1, 3}},
		"all but the newest": {[]int{0, 1, 2}, []int{3}},
	} {
		t.Run(name, func(t *testing.T) {
			w := newCheckedWorld(t, worldengine.Config{})
			page, want := w.talks(4), []string{}
			for _, i := range c.left {
				want = append(want, page[i])
			}
			first := w.logEnd() - uint64(len(page)) + 1
			var seqs []uint64
			for _, i := range c.damaged {
				seqs = append(seqs, first+uint64(i))
			}
			w.flipInLog(seqs...)
			require.Equal(t, want, w.pages(runs.RunFilter{}, 10))
			require.Equal(t, want, w.pages(runs.RunFilter{Towns: []string{"t"}}, 1), "a page each")
			for _, i := range c.damaged {
				_, err := w.engine.Runs().Get(t.Context(), page[i])
				require.ErrorIs(t, err, runs.ErrRunDamaged)
				_, err = w.engine.Runs().Events(t.Context(), page[i], 5, 10)
				require.ErrorIs(t, err, runs.ErrRunDamaged)
				reply, err := w.nc.Request("worldengine.v1.main.run.get",
					[]byte(`{"runId":"`+page[i]+`"}`), time.Minute)
				require.NoError(t, err)
				require.Equal(t, "500", reply.Header.Get("Nats-Service-Error-Code"))
				require.Contains(t, string(reply.Data), `"RUN_DAMAGED"`)
			}
			_, err := w.engine.Runs().Get(t.Context(), "unknown")
			require.ErrorIs(t, err, runs.ErrUnknownRun)
		})
	}
}
