package index

import (
	"slices"
	"strconv"
	"testing"

	"github.com/nats-io/nats.go"
	"github.com/stretchr/testify/require"

	"worldengine/worldengine/internal/kit/layout"
	"worldengine/worldengine/internal/store/records"
)

// needed counts the needs of a town from its records, the oldest first.
func needed(headers []nats.Header) (n records.RequiredHistory) {
	epochOf := func(h nats.Header) int64 {
		epoch, _ := strconv.ParseInt(h.Get(layout.EpochHeader), 10, 64)
		return epoch
	}
	newest := headers[len(headers)-1]
	n.Epoch = epochOf(newest)
	for i, h := range slices.Backward(headers) {
		behind := uint32(len(headers) - i)
		if epochOf(h) == n.Epoch && h.Get(layout.ResultHeader) == "failed PROJECT_BLOCKED" {
			n.FailedHandoffs, n.SinceFailed = n.FailedHandoffs+1, behind
		}
		if h.Get(layout.PendingHeader) != "" && behind == n.SincePending+1 {
			n.SincePending = behind
		}
	}
	return n
}

// An index that follows its log has each town's needs, also of messages that were Put after a gap,
// and after a repair that puts a town back to an earlier epoch; as one that is built from the log.
func TestIndex_Needs(t *testing.T) {
	t.Parallel()
	for seed := range uint64(10) {
		g, l := newGenerator(seed), &memoryLog{}
		ix := open(t, l, "")
		var records []nats.Header
		epoch, gap := int64(1), false
		for range 60 {
			h := nats.Header{layout.KindHeader: {"control"}}
			switch g.IntN(20) {
			case 0, 1:
				h.Set(layout.KindHeader, "put")
				epoch++
			case 2:
				h.Set(layout.KindHeader, "mend")
				epoch = max(1, epoch-g.Int64N(3))
			case 3, 4, 5, 6:
				h.Set(layout.PendingHeader, "true")
			case 7, 8, 9, 10:
				h = executed("key", "run", g.at)
				h.Set(layout.ResultHeader, "failed PROJECT_BLOCKED")
			case 11:
				h = executed("key", "run", g.at)
				epoch++
			}
			h.Set(layout.EpochHeader, strconv.FormatInt(epoch, 10))
			records = append(records, h)
			if gap = g.IntN(10) == 0 && h.Get(layout.KindHeader) != "mend"; gap {
				l.append(layout.RunSubject("w", "other"), nats.Header{})
			}
			m := l.append(layout.LogSubject("w", "t"), h)
			ix.Put(m.seq, m.subject, m.header)
			needs, newest := ix.RequiredHistory("t")
			if newest == m.seq {
				require.Equal(t, needed(records), needs, "seed %d, record %d", seed, len(records))
			}
			require.True(t, newest == m.seq || gap)
			if gap {
				_, err := ix.CatchUp(t.Context())
				require.NoError(t, err)
			}
			needs, _ = ix.RequiredHistory("t")
			require.Equal(t, needed(records), needs, "seed %d, record %d", seed, len(records))
		}
		fresh, _ := open(t, l, "").RequiredHistory("t")
		require.Equal(t, needed(records), fresh)
		require.NoError(t, ix.Close())
	}
}
