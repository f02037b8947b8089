package index

import (
	"cmp"
	"slices"

	"worldengine/handoff"
	"worldengine/worldengine/internal/store/records"
)

// Chain describes the records on a town's log subject. The guard of each record names its predecessor
// there, so the rows are linked without a hole from the newest to the oldest, unless the index or the
// log lacks a record.
type Chain struct {
	Town   string // token
	Newest uint64 // sequence of the newest record; 0 if the town has none
	// Hole is the sequence of the newest record whose predecessor is missing, 0 if there is none.
	// Missing is the predecessor that the record names, and Before the sequence of the record that
	// the index has in its place; 0 if it has none.
	Hole, Missing, Before uint64
	// Linked is the number of records from Hole, or else from the oldest, to Newest.
	Linked uint32
	// GivenUp is how many of these records repairs have given up; the log may keep them all the same.
	GivenUp uint32
}

// Chain returns the chain of a town.
func (ix *Index) Chain(token string) Chain {
	ix.mu.RLock()
	defer ix.mu.RUnlock()
	return ix.state.chain(ix.state.townNumber(token))
}

// Chains returns the chains of all towns that have one, ordered by town.
func (ix *Index) Chains() (all []Chain) {
	ix.mu.RLock()
	defer ix.mu.RUnlock()
	for n := range ix.state.towns {
		if ix.state.towns[n].newest != 0 {
			all = append(all, ix.state.chain(uint32(n)))
		}
	}
	slices.SortFunc(all, func(a, b Chain) int { return cmp.Compare(a.Town, b.Town) })
	return all
}

// BrokenChains returns the chains with a hole that is damage: the log must keep the missing record. They are
// ordered by town.
func (ix *Index) BrokenChains() (all []Chain) {
	limits := ix.Limits()
	ix.mu.RLock()
	defer ix.mu.RUnlock()
	for n := range ix.state.holes {
		if c := ix.state.chain(n); !c.Whole(limits) {
			all = append(all, c)
		}
	}
	slices.SortFunc(all, func(a, b Chain) int { return cmp.Compare(a.Town, b.Town) })
	return all
}

// Limits returns which records the log may have forgotten.
func (ix *Index) Limits() Limits { return ix.config.Source.Limits() }

// Whole reports whether the index has every record of the town that the log must keep: the chain has
// no hole, or the log may have forgotten the records in it.
func (c *Chain) Whole(l Limits) bool {
	return c.Hole == 0 || uint64(c.Linked) >= l.MinHistory || c.Before == 0 && c.Hole <= l.RestoredTo
}

// Needed returns how many of the linked records the log must keep.
func (c *Chain) Needed(l Limits) uint64 {
	needed := min(uint64(c.Linked), l.MinHistory)
	return needed - min(needed, uint64(c.GivenUp))
}

// MustKeep reports whether the log must keep the record at a sequence, of which the index knows as one
// on a town's log subject: too few records of the town follow it, and no repair has given it up.
func (ix *Index) MustKeep(seq uint64) bool {
	limits := ix.Limits()
	ix.mu.RLock()
	defer ix.mu.RUnlock()
	if seq > ix.state.position { // it is in outOfOrder
		return true
	}
	n := ix.state.firstAfter(seq - 1)
	if n > ix.state.count {
		return false
	}
	r := ix.state.row(n)
	if r.Seq != seq || !r.has(onTownSubject) {
		return false
	}
	t := &ix.state.towns[r.town]
	return uint64(ix.state.row(t.newest).ordinal-r.ordinal) < limits.MinHistory && !t.gaps.Has(seq)
}

// TownAt returns the town token of the row at a sequence; "" if there is none.
func (ix *Index) TownAt(seq uint64) string {
	ix.mu.RLock()
	defer ix.mu.RUnlock()
	if n := ix.state.firstAfter(seq - 1); n <= ix.state.count {
		return ix.state.tokens.names[ix.state.row(n).town]
	}
	return ""
}

func (s *state) chain(n uint32) (c Chain) {
	t := &s.towns[n]
	if t.newest == 0 {
		return c
	}
	newest := s.row(t.newest)
	c.Town = s.tokens.names[n]
	c.Newest, c.Linked = newest.Seq, newest.ordinal
	if t.hole != 0 {
		hole := s.row(t.hole)
		c.Hole, c.Missing, c.Linked = hole.Seq, hole.Guard, newest.ordinal-hole.ordinal+1
	}
	c.GivenUp = t.givenUp
	if t.before != 0 {
		c.Before = s.row(t.before).Seq
	}
	return c
}

// RequiredHistory returns the required history of a town, and the sequence of the newest record in it. It counts
// records behind a gap, too, up to the first that returns the town to an earlier epoch.
func (ix *Index) RequiredHistory(token string) (needs records.RequiredHistory, newest uint64) {
	ix.mu.RLock()
	defer ix.mu.RUnlock()
	t := &ix.state.towns[ix.state.townNumber(token)]
	if needs = t.required; t.newest != 0 {
		newest = ix.state.row(t.newest).Seq
	}
	for i := range ix.outOfOrder {
		e := &ix.outOfOrder[i]
		if e.town != token || !e.has(onTownSubject) {
			continue
		}
		if e.Epoch != needs.Epoch && e.Epoch <= max(t.maxEpoch, needs.Epoch) {
			break
		}
		failed := e.has(consumesKey) && e.result == string(handoff.Failed)
		needs.Add(e.Epoch, failed, e.has(Pending))
		newest = e.Seq
	}
	return needs, newest
}
