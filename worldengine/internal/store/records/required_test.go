package records_test

import (
	"math/rand/v2"
	"testing"

	"github.com/stretchr/testify/require"

	"worldengine/worldengine/internal/store/commitlog/logtest"
	"worldengine/worldengine/internal/store/records"
)

// Whatever records a town gets while CheckHistoryRoom allows them, the log never discards the record of a
// handoff that failed at the town's epoch, nor the first record of a pending command. A command and a
// pause always find room for their end.
func TestRequiredHistory_KeepsFailedHandoffs(t *testing.T) {
	t.Parallel()
	type record struct {
		epoch                   int64
		failed, pending, paused bool
	}
	l := logtest.New(t)
	const history = 100 // of logtest
	refused := map[records.TownPriority]int{}
	for seed := range uint64(200) {
		rng := rand.New(rand.NewPCG(seed, 1))
		var needs records.RequiredHistory
		all := []record{{epoch: 1}}
		needs.Add(1, false, false)
		for range 500 {
			last := all[len(all)-1]
			next, use := last, records.TownPrioritySignal
			next.failed = false
			switch n := rng.IntN(40); {
			case n == 0 && rng.IntN(10) == 0:
				next.epoch, next.pending = last.epoch+1, false
			case n < 4:
			case n < 10 && last.paused:
				use, next.paused = records.TownPriorityResume, false
			case n < 10:
				use, next.paused = records.TownPriorityPause, true
			case last.pending && n < 30:
				use = records.TownPriority(int(records.TownPriorityUnreached) + rng.IntN(2))
			case last.pending:
				use, next.pending, next.failed = records.TownPriorityEnd, false, rng.IntN(2) == 0
			default:
				use, next.failed = records.TownPriorityHandoff, rng.IntN(3) > 0
				next.pending = !next.failed
			}
			if next.epoch == last.epoch && l.CheckHistoryRoom(needs, use) != nil {
				refused[use]++
				require.Less(t, use, records.TownPriorityResume, "seed %d", seed)
				continue
			}
			all = append(all, next)
			needs.Add(next.epoch, next.failed, next.pending)
			for i, r := range all[:max(0, len(all)-history)] {
				require.False(t, r.failed && r.epoch == next.epoch, "seed %d: record %d of %d is discarded",
					seed, i, len(all))
			}
			if n := len(all) - history; next.pending && n > 0 {
				require.False(t, all[n-1].pending && allPending(all[n-1:], func(r record) bool { return r.pending }),
					"seed %d: the command's first record is discarded", seed)
			}
		}
	}
	for use := records.TownPriorityHandoff; use < records.TownPriorityResume; use++ {
		require.NotZero(t, refused[use])
	}
}

func allPending[T any](list []T, pending func(T) bool) bool {
	for _, r := range list {
		if !pending(r) {
			return false
		}
	}
	return true
}
