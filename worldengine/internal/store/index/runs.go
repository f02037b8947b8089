package index

import (
	"iter"
	"time"

	"worldengine/worldengine/internal/kit/layout"
	"worldengine/worldengine/wire"
)

// Filter selects the runs of a list and their order. Its zero value means all runs, the newest
// first.
type Filter struct {
	Towns []string // the town of the first row; none for every town
	// From and To bound the persistedAt of a run's first row: From <= at < To; zero for open.
	From, To time.Time
	// Status is a status that the run's newest row has: of the run, such as RUNNING, or of the result,
	// such as rejected.
	Status string
	// ActorID and Type are of the first row; Type is the type of a proposal, or a signal.
	ActorID, Type string
	Reason        string // reason code of the result in the newest row
	// ID is the beginning of an id of the run: its own, its key, or the id of its handoff or its
	// result, with or without the word before the hash. The index ignores it.
	ID string
	// Oldest lists the oldest runs first, in the order in which they were committed.
	Oldest bool
	// AfterMark, if set, selects only runs that have a row behind this sequence, however old they
	// are. The runs are ordered by their first such rows. From, To and Oldest are then ignored.
	AfterMark *uint64
}

// Page is a part of a list of runs.
type Page struct {
	Runs []Run
	// Cursors has, for each of the runs, the value of after that continues the list behind the run.
	Cursors []uint64
	// Next is the value of after that continues the list; 0 at the end.
	Next uint64
	// Searched is how many runs were searched for this page. To is the persistedAt of the first row of
	// the last run that was searched; zero if there was none.
	Searched int
	To       time.Time
}

// rowsPerLock is the number of rows after which a search lets writers in.
const rowsPerLock = 4096

// Runs returns at most limit runs that pass a filter; limit is at least 1. after is the Next of the
// page before, or 0 to begin. A page with a Next may have fewer runs, or none: ask again with that
// Next.
func (ix *Index) Runs(filter Filter, after uint64, limit int) (page Page) {
	ix.mu.RLock()
	defer ix.mu.RUnlock()
	search, n := newSearch(ix.state, filter), 0
	for r := range search.rowsBehind(after) {
		if n++; n%rowsPerLock == 0 { // A compaction may swap ix.state; the old state stays as it is.
			ix.mu.RUnlock()
			ix.mu.RLock()
		}
		if !search.startsRun(r) {
			continue
		}
		if len(page.Runs) == limit {
			return page
		}
		first := search.first(r.run)
		page.Next, page.Searched, page.To = r.Seq, page.Searched+1, instant(first.At)
		if search.matches(r) {
			page.Runs = append(page.Runs, search.viewRun(r.run, 0))
			page.Cursors = append(page.Cursors, r.Seq)
		}
	}
	page.Next = 0
	return page
}

// search is the search for the runs of a page.
type search struct {
	*state
	filter  Filter
	actor   string          // token
	inTowns map[uint32]bool // numbers of the filter's towns
	mark    uint64
}

func newSearch(state *state, f Filter) search {
	s := search{state: state, filter: f, actor: layout.ActorToken(f.ActorID),
		inTowns: map[uint32]bool{}}
	for _, townID := range f.Towns {
		s.inTowns[s.townNumber(wire.TownToken(townID))] = true
	}
	delete(s.inTowns, 0) // the number of each town without rows
	if f.AfterMark != nil {
		s.filter.Oldest, s.mark = true, *f.AfterMark
		s.filter.From, s.filter.To = time.Time{}, time.Time{}
	}
	return s
}

// rowsBehind returns the rows to search, in the order of the list: those behind the row at a
// sequence, or all if it is 0. If the filter has one town and no mark, rowsBehind returns only rows
// of that town.
func (s *search) rowsBehind(after uint64) iter.Seq[*packedRow] {
	return func(yield func(*packedRow) bool) {
		if len(s.filter.Towns) == 1 && s.filter.AfterMark == nil {
			s.rowsOfTown(s.townNumber(wire.TownToken(s.filter.Towns[0])), after, yield)
			return
		}
		if s.filter.Oldest {
			for n := s.firstAfter(max(s.mark, after)); n <= s.count; n++ {
				if !yield(s.row(n)) {
					return
				}
			}
			return
		}
		n := s.count
		if after > 0 {
			n = s.firstAfter(after-1) - 1
		}
		for ; n > 0 && yield(s.row(n)); n-- {
		}
	}
}

func (s *search) rowsOfTown(town uint32, after uint64, yield func(*packedRow) bool) {
	if s.filter.Oldest {
		prev := func(r *packedRow) uint32 { return r.prevTown }
		for _, r := range s.rows(s.towns[town].last, after, prev) {
			if !yield(r) {
				return
			}
		}
		return
	}
	for n := s.towns[town].last; n != 0; n = s.row(n).prevTown {
		if r := s.row(n); (after == 0 || r.Seq < after) && !yield(r) {
			return
		}
	}
}

// startsRun reports whether a row is the first one of its run behind the mark.
func (s *search) startsRun(r *packedRow) bool {
	return r.run != 0 && (r.prevRun == 0 || s.row(r.prevRun).Seq <= s.mark)
}

func (s *search) matches(r *packedRow) bool {
	first, last, f := s.first(r.run), s.labelsOf(s.last(r.run)), &s.filter
	at := instant(first.At)
	return (f.Status == "" || f.Status == string(last.status) || f.Status == last.result) &&
		(s.actor == "" || s.actor == s.actors.names[first.actor]) &&
		(f.Type == "" || f.Type == s.labelsOf(first).detail) &&
		(f.Reason == "" || f.Reason == last.reason) &&
		(len(f.Towns) == 0 || s.inTowns[first.town]) &&
		!at.Before(f.From) && (f.To.IsZero() || at.Before(f.To))
}
