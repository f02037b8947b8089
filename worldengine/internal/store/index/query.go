package index

import (
	"cmp"
	"maps"
	"slices"
	"time"

	"worldengine/runevents"
	"worldengine/worldengine/internal/core/machine"
	"worldengine/worldengine/internal/kit/layout"
)

// Accepted returns the sequence of the newest record that consumed a key in a town, or, if
// townToken is "", in any town. The caller compares the record's key, since the index has only its
// fingerprint.
func (ix *Index) Accepted(townToken, key string) (seq uint64, found bool) {
	hash := fingerprint(key)
	ix.mu.RLock()
	defer ix.mu.RUnlock()
	for _, e := range slices.Backward(ix.outOfOrder) {
		if e.has(consumesKey) && e.Key == hash && (townToken == "" || e.town == townToken) {
			return e.Seq, true
		}
	}
	var n uint32
	if townToken == "" {
		n = ix.state.anyKeys.get(hash)
	} else {
		n = ix.state.keys.get(keyInTown(hash, ix.state.townNumber(townToken)))
	}
	if n == 0 {
		return 0, false
	}
	return ix.state.row(n).Seq, true
}

// Run has rows of a run, ascending. Town is their town's token, "" if no row has one.
type Run struct {
	Town string
	Rows []RowView
}

// Run returns a run with its rows after a sequence, and whether there are any.
func (ix *Index) Run(runID string, after uint64) (Run, bool) {
	hash := fingerprint(runID)
	ix.mu.RLock()
	defer ix.mu.RUnlock()
	run := ix.state.viewRun(ix.state.runNumber(hash), after)
	return run, len(run.Rows) > 0
}

// viewRun returns the rows, after a sequence, of the run with a number; none for 0.
func (s *state) viewRun(n uint32, after uint64) (run Run) {
	for _, r := range s.rows(s.runs[n].last, after, func(r *packedRow) uint32 { return r.prevRun }) {
		row := s.view(r)
		run.Town, run.Rows = cmp.Or(run.Town, row.Town), append(run.Rows, row)
	}
	return run
}

// Status is the status to which the rows have brought the run.
func (r *Run) Status() runevents.RunStatus { return r.Rows[len(r.Rows)-1].Status }

// LastSeq is the highest runSeq of the run.
func (r *Run) LastSeq() (last int64) {
	for i := range r.Rows {
		last = max(last, int64(r.Rows[i].LastRunSeq))
	}
	return last
}

// townNumber returns the number of a town, 0 if it has no rows.
func (s *state) townNumber(token string) uint32 { return s.tokens.numbers[token] }

// LastAt returns the latest persistedAt of the rows of a town and of a run, zero if there is none.
// Their next record must not be before it.
func (ix *Index) LastAt(townToken, runID string) time.Time {
	hash := fingerprint(runID)
	ix.mu.RLock()
	defer ix.mu.RUnlock()
	at := max(ix.state.towns[ix.state.townNumber(townToken)].at, ix.state.runs[ix.state.runNumber(hash)].at)
	for _, e := range ix.outOfOrder {
		if e.town != "" && e.town == townToken || e.RunID != 0 && e.RunID == hash {
			at = max(at, e.At)
		}
	}
	return instant(at)
}

// Towns returns the tokens, sorted, of the towns whose newest row on the log subject has a flag:
// Pending, Paused, ApprovalWaiting, InDoubt or Removed. If flag is 0, it returns all towns that are not
// removed.
func (ix *Index) Towns(flag Flag) []string {
	return slices.Sorted(maps.Keys(ix.NewestByTown(flag)))
}

// Approvals returns the rows of proposals that began to wait for a decision, or got one: at most
// limit, the newest first. If before is above 0, only earlier rows count; an empty townToken means
// every town.
func (ix *Index) Approvals(townToken string, before uint64, limit int) (rows []RowView) {
	ix.mu.RLock()
	defer ix.mu.RUnlock()
	s := ix.state
	town := s.townNumber(townToken)
	for _, n := range slices.Backward(s.approvals) {
		if len(rows) == limit {
			break
		}
		r := s.row(n)
		if (before == 0 || r.Seq < before) && (townToken == "" || r.town == town) {
			rows = append(rows, s.view(r))
		}
	}
	return rows
}

// ApprovalsAfter returns the rows of a town that Approvals returns, after a sequence: at most limit,
// the oldest first.
func (ix *Index) ApprovalsAfter(townToken string, after uint64, limit int) (rows []RowView) {
	ix.mu.RLock()
	defer ix.mu.RUnlock()
	s := ix.state
	town := s.townNumber(townToken)
	first, _ := slices.BinarySearch(s.approvals, s.firstAfter(after))
	for _, n := range s.approvals[first:] {
		if len(rows) == limit {
			break
		}
		if r := s.row(n); r.town == town {
			rows = append(rows, s.view(r))
		}
	}
	return rows
}

// NewestByTown returns the towns that Towns returns: by token, the sequence of the newest row on the
// town's log subject.
func (ix *Index) NewestByTown(flag Flag) map[string]uint64 {
	ix.mu.RLock()
	defer ix.mu.RUnlock()
	seqs := map[string]uint64{}
	for n, town := range ix.state.towns {
		if town.newest != 0 && town.flags&flag == flag && (flag == Removed || town.flags&Removed == 0) {
			seqs[ix.state.tokens.names[n]] = ix.state.row(town.newest).Seq
		}
	}
	return seqs
}

// OpenRunStarts returns the first sequence, ascending, of each unfinished run that was recorded as
// waiting. Some of these runs may have been judged meanwhile.
func (ix *Index) OpenRunStarts() (seqs []uint64) {
	ix.mu.RLock()
	defer ix.mu.RUnlock()
	for run := range ix.state.open {
		first := ix.state.first(run)
		if ix.state.labelsOf(first).kind == machine.KindRunEvents {
			seqs = append(seqs, first.Seq)
		}
	}
	slices.Sort(seqs)
	return seqs
}

// Appended returns the first rows after a sequence, at most limit, that are of appended events.
func (ix *Index) Appended(after uint64, limit int) []RowView {
	ix.mu.RLock()
	defer ix.mu.RUnlock()
	s, rows := ix.state, []RowView(nil)
	for n := s.firstAfter(after); n <= s.count && len(rows) < limit; n++ {
		if r := s.row(n); s.labelsOf(r).kind == machine.KindAppended {
			rows = append(rows, s.view(r))
		}
	}
	return rows
}

// Inconsistent returns the rows after a sequence, ascending, that made a run INCONSISTENT: the newest of
// them, at most limit.
func (ix *Index) Inconsistent(after uint64, limit int) []RowView {
	ix.mu.RLock()
	defer ix.mu.RUnlock()
	var rows []RowView
	for _, n := range slices.Backward(ix.state.inconsistent) {
		r := ix.state.row(n)
		if r.Seq <= after || len(rows) == limit {
			break
		}
		rows = append(rows, ix.state.view(r))
	}
	slices.Reverse(rows)
	return rows
}

// Skip returns the sequence to which a reader of the towns with tokens can skip from after: all
// messages up to it are of other towns. It looks at no more than rowsPerLock rows. It stops at a
// message that the index lacks, and at a refused run of an unknown town: both may be of any town.
func (ix *Index) Skip(tokens []string, after uint64) uint64 {
	ix.mu.RLock()
	defer ix.mu.RUnlock()
	s, read := ix.state, map[uint32]bool{0: true, ix.state.townNumber(layout.UnknownTownToken): true}
	for _, token := range tokens {
		read[s.townNumber(token)] = true
	}
	first := s.firstAfter(after)
	for n := first; n <= s.count && n < first+rowsPerLock; n++ {
		if r := s.row(n); r.Seq != after+1 || read[r.town] {
			break
		}
		after++
	}
	return after
}
