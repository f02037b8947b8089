package commitlog

import (
	"testing"

	"github.com/stretchr/testify/require"
)

func TestRanges(t *testing.T) {
	t.Parallel()
	ranges := []Range{{1, 4}, {7, 7}, {9, 20}}
	var have []uint64
	for seq := range uint64(22) {
		if contains(ranges, seq) {
			have = append(have, seq)
		}
	}
	require.Equal(t, []uint64{1, 2, 3, 4, 7, 9, 10, 11, 12, 13, 14, 15, 16, 17, 18, 19, 20}, have)
	require.Equal(t, Range{1, 30}, span([]Replica{{Lacks: ranges}, {}, {Lacks: []Range{{3, 30}}}}))
}
