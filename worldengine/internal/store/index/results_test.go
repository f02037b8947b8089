package index

import (
	"slices"
	"testing"

	"github.com/stretchr/testify/require"

	"worldengine/worldengine/internal/kit/layout"
)

// results answers Index.Results.
func (o *oracleRows) results(tokens []string, kept FirstKept, most int) Results {
	want := Results{Counts: map[string]int{}, Newest: map[string][]uint64{}}
	for _, r := range slices.Backward(o.rows) {
		world := tokens == nil && r.Town != "" && r.Town != layout.UnknownTownToken
		if !world && !slices.Contains(tokens, r.Town) || r.Town == "" {
			continue
		}
		first := kept.Refused
		if r.Flags&onTownSubject != 0 {
			first = kept.Log
		}
		if r.result == "" || r.Seq < first {
			continue
		}
		want.Counts[r.result]++
		if newest := want.Newest[r.result]; len(newest) < most {
			want.Newest[r.result] = append(newest, r.Seq)
		}
	}
	return want
}

func requireResults(t *testing.T, g *generator, o *oracleRows, ix *Index) {
	t.Helper()
	towns := []string{"t0", "t1", "t2", "t3", "t4", "ghost", layout.UnknownTownToken}
	for range 20 {
		most, town := 1+g.IntN(10), pick(g, towns...)
		kept := FirstKept{Log: g.Uint64N(ix.Position() + 2), Refused: g.Uint64N(ix.Position() + 2)}
		some := pick(g, nil, []string{}, []string{town}, []string{"t1", "t3"})
		kept = pick(g, kept, FirstKept{})
		require.Equal(t, o.results(some, kept, most), ix.Results(some, kept, most))
	}
}
