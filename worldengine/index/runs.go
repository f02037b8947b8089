package index

import (
	"iter"
	"math"
	"sort"
	"time"
)

// Filter says which runs a list has. Zero members let every run pass.
type Filter struct {
	Towns []string // tokens, of the first row's town
	// From and To bound the persistedAt of a run's first row: From <= at < To.
	From, To time.Time
	Status   string // run status, or result status, of the newest row
	ActorID  string // actor token, of the first row
	Type     string // of the first row
	Reason   string // reason code of the result, of the newest row
	Oldest   bool   // the oldest first
	// AfterMark lists the runs with a row after this sequence, in the order of their first such
	// row. From, To and Oldest do not count then.
	AfterMark *uint64
}

// Page is a part of a list of runs.
type Page struct {
	Seqs []uint64 // the sequence of each run's first row
	Runs []Run
	// Places continue the list behind each of the runs, as the argument after.
	Places []uint64
	// Next continues the list as after; 0 at the end.
	Next uint64
	// Looked is how many runs the page was looked for among, and To the persistedAt of the first row of
	// the last one of them; zero if there was none.
	Looked int
	To     time.Time
}

// maxSearch is how many runs one page looks at, searchTurn how many between two writers' turns.
const (
	maxSearch  = 4 << 20
	searchTurn = 4096
)

// Runs returns at most limit runs, from 1, that pass a filter: after the Next of the page before,
// or from the beginning with 0. A page may have fewer runs, or none, and a Next: ask on.
func (ix *Index) Runs(filter Filter, after uint64, limit int) (page Page) {
	ix.mu.RLock()
	defer ix.mu.RUnlock()
	search := newSearch(ix.s, filter)
	n := 0
	for r := range search.rowsBehind(after) {
		if len(page.Seqs) == limit || n == ix.maxSearch {
			return page
		}
		n++
		first := search.row(search.runs[r.Run].first)
		page.Next, page.Looked, page.To = r.Seq, n, instant(first.At)
		if search.passes(r) {
			page.Seqs = append(page.Seqs, first.Seq)
			page.Runs = append(page.Runs, search.viewRun(r.Run))
			page.Places = append(page.Places, r.Seq)
		}
		if n%searchTurn == 0 { // A compaction may swap ix.s; the old state stays as it is.
			ix.mu.RUnlock()
			ix.mu.RLock()
		}
	}
	page.Next = 0
	return page
}

// search is the search for the runs of a page. Its names are numbers: 0 for any, and math.MaxUint32
// for one that no row has.
type search struct {
	*state
	filter                     Filter
	inTowns                    map[uint32]bool
	actor, status, typ, reason uint32
	from, to                   int64 // from <= at < to, in ms
}

func newSearch(state *state, f Filter) search {
	s := search{state: state, filter: f, inTowns: map[uint32]bool{},
		from: math.MinInt64, to: math.MaxInt64}
	s.actor = s.number(actorNames, f.ActorID)
	s.status, s.typ = s.number(wordNames, f.Status), s.number(wordNames, f.Type)
	s.reason = s.number(wordNames, f.Reason)
	if f.AfterMark == nil && !f.From.IsZero() {
		s.from = ceilMilli(f.From)
	}
	if f.AfterMark == nil && !f.To.IsZero() {
		s.to = ceilMilli(f.To)
	}
	for _, token := range f.Towns {
		s.inTowns[s.number(townNames, token)] = true
	}
	return s
}

// rowsBehind returns the rows to look at, one for each run, after the one at a sequence.
func (s *search) rowsBehind(after uint64) iter.Seq[*row] {
	switch {
	case s.filter.AfterMark != nil:
		return s.afterMark(*s.filter.AfterMark, after)
	case len(s.filter.Towns) == 1:
		return s.ofTown(s.town(s.filter.Towns[0]), after)
	case s.filter.Oldest:
		return s.oldest(after)
	}
	return s.newest(after)
}

// ceilMilli returns the first ms that is not before t.
func ceilMilli(t time.Time) int64 { return t.Add(time.Millisecond - 1).UnixMilli() }

// number returns the number of a name of a filter, math.MaxUint32 for one that no row has.
func (s *search) number(class int, name string) uint32 {
	if n, known := s.names[class].numbers[name]; known {
		return n
	}
	return math.MaxUint32
}

// passes reports whether the run of a row passes the filter.
func (s *search) passes(r *row) bool {
	run := s.runs[r.Run]
	first, last := s.row(run.first), s.row(run.last)
	return (s.status == 0 || uint32(last.Status) == s.status ||
		uint32(last.ResultStatus) == s.status) &&
		(s.actor == 0 || first.Actor == s.actor) &&
		(s.typ == 0 || uint32(first.Type) == s.typ) &&
		(s.reason == 0 || uint32(last.Reason) == s.reason) &&
		first.At >= s.from && first.At < s.to &&
		(len(s.inTowns) == 0 || s.inTowns[first.Town])
}

// afterMark returns, of each run, the first row after a mark.
func (s *search) afterMark(mark, after uint64) iter.Seq[*row] {
	return func(yield func(*row) bool) {
		for n := s.after(max(mark, after)); n <= s.count; n++ {
			r := s.row(n)
			if r.Run != 0 && (r.PrevRun == 0 || s.row(r.PrevRun).Seq <= mark) && !yield(r) {
				return
			}
		}
	}
}

// oldest returns the first rows of all runs after a sequence, ascending.
func (s *search) oldest(after uint64) iter.Seq[*row] {
	return func(yield func(*row) bool) {
		for run := s.runFrom(after + 1); run < len(s.runs); run++ {
			if !yield(s.row(s.runs[run].first)) {
				return
			}
		}
	}
}

// newest returns the first rows of all runs before a sequence, or of all with 0, descending.
func (s *search) newest(before uint64) iter.Seq[*row] {
	return func(yield func(*row) bool) {
		run := len(s.runs)
		if before > 0 {
			run = s.runFrom(before)
		}
		for run--; run > 0; run-- {
			if !yield(s.row(s.runs[run].first)) {
				return
			}
		}
	}
}

// runFrom returns the number of the first run that begins at or after a sequence.
func (s *search) runFrom(seq uint64) int {
	return 1 + sort.Search(len(s.runs)-1, func(i int) bool {
		return s.row(s.runs[i+1].first).Seq >= seq
	})
}

// ofTown returns the first rows of the runs that began in a town: see oldest and newest.
func (s *search) ofTown(town uint32, after uint64) iter.Seq[*row] {
	return func(yield func(*row) bool) {
		if s.filter.Oldest {
			for _, r := range s.rows(s.towns[town].last, func(r *row) uint32 { return r.PrevTown }) {
				if r.has(First) && r.Seq > after && !yield(r) {
					return
				}
			}
			return
		}
		for n := s.towns[town].last; n != 0; n = s.row(n).PrevTown {
			r := s.row(n)
			if r.has(First) && (after == 0 || r.Seq < after) && !yield(r) {
				return
			}
		}
	}
}
