package index

import (
	"slices"
	"sort"

	"worldengine/worldengine/internal/kit/layout"
)

// resultLists are the rows with results of a town, or of the world. Each status has a list of the rows
// on the log subject, and one of the others, in the order of the log. So a binary search counts the
// rows after a sequence.
type resultLists []resultRows

type resultRows struct {
	status        string
	onTownSubject bool // on the log subject
	rows          []uint32
}

func (r *resultLists) add(n uint32, status string, onTownSubject bool) {
	for i := range *r {
		if list := &(*r)[i]; list.status == status && list.onTownSubject == onTownSubject {
			list.rows = append(list.rows, n)
			return
		}
	}
	*r = append(*r, resultRows{status, onTownSubject, []uint32{n}})
}

// addResult adds a row to the results of its town and of the world. The world has no results of
// towns that do not exist.
func (s *state) addResult(n uint32, r *packedRow) {
	status := s.labelsOf(r).result
	if status == "" || r.town == 0 {
		return
	}
	s.results[r.town].add(n, status, r.has(onTownSubject))
	if s.tokens.names[r.town] != layout.UnknownTownToken {
		s.results[0].add(n, status, r.has(onTownSubject))
	}
}

// FirstKept are the first sequences that a log keeps of a town: on its log subject, and of its refused
// runs. Rows before them are of forgotten messages.
type FirstKept struct{ Log, Refused uint64 }

// Results are the results of some towns, or of the world.
type Results struct {
	// Counts are how many results there are of each status.
	Counts map[string]int
	// Newest are the sequences of the newest results of each status, the newest first.
	Newest map[string][]uint64
}

// Results returns the results that the log keeps of some towns, or of all if tokens is nil. Newest
// has no more than limit of each status. If kept is zero, rows of forgotten messages may be among
// them.
func (ix *Index) Results(tokens []string, kept FirstKept, limit int) Results {
	ix.mu.RLock()
	defer ix.mu.RUnlock()
	found := Results{Counts: map[string]int{}, Newest: map[string][]uint64{}}
	if tokens == nil {
		found.collect(ix.state, ix.state.results[0], kept, limit)
	}
	for _, token := range tokens {
		if town := ix.state.townNumber(token); town != 0 {
			found.collect(ix.state, ix.state.results[town], kept, limit)
		}
	}
	return found
}

func (f *Results) collect(s *state, lists resultLists, kept FirstKept, limit int) {
	for i := range lists {
		list, first := &lists[i], kept.Refused
		if list.onTownSubject {
			first = kept.Log
		}
		from := sort.Search(len(list.rows), func(i int) bool {
			return s.row(list.rows[i]).Seq >= first
		})
		rows := list.rows[from:]
		if len(rows) == 0 {
			continue
		}
		f.Counts[list.status] += len(rows)
		newest := f.Newest[list.status]
		for _, n := range rows[max(0, len(rows)-limit):] {
			newest = append(newest, s.row(n).Seq)
		}
		slices.Sort(newest)
		slices.Reverse(newest)
		f.Newest[list.status] = newest[:min(len(newest), limit)]
	}
}
