package index

import (
	"slices"
	"time"

	"worldengine/runevents"
)

// EndedRun is the run of a handoff that has ended.
type EndedRun struct {
	Seq         uint64    // of the message that ended it
	Arrived, At time.Time // of the handoff, and of the end, in UTC and ms
	// Outcome is the status of the result, or OutcomeCancelled.
	Outcome string
	// Waited is set if the run has several rows: the handoff has waited, or a game has applied it.
	Waited bool
}

// OutcomeCancelled is the outcome of a handoff whose run was cancelled.
const OutcomeCancelled = "cancelled"

// notifyEnded calls OnEnded with the runs that rows have ended since the last call.
func (ix *Index) notifyEnded() {
	if ix.config.OnEnded == nil || ix.notified >= ix.state.position {
		return
	}
	for n := ix.state.firstAfter(ix.notified); n <= ix.state.count; n++ {
		if run, ends := ix.state.endedRun(ix.state.row(n)); ends {
			ix.config.OnEnded(run)
		}
	}
	ix.notified = ix.state.position
}

// endedRun returns the run of a handoff that a row ends, and whether it ends one.
func (s *state) endedRun(r *packedRow) (run EndedRun, ends bool) {
	w := s.labelsOf(r)
	if !r.has(Ended) || r.prevRun != 0 && s.row(r.prevRun).has(Ended) ||
		w.kind.Spec().Foreign {
		return run, false
	}
	outcome := w.result
	if outcome == "" && w.status == runevents.RunStatusCancelled {
		outcome = OutcomeCancelled
	}
	return EndedRun{r.Seq, s.arrived(r.run), instant(r.At), outcome, r.prevRun != 0}, outcome != ""
}

func (s *state) arrived(run uint32) time.Time {
	return instant(s.first(run).At - int64(s.first(run).Waited))
}

// EndedRuns returns the runs of a town that have ended, the newest first.
func (ix *Index) EndedRuns(townToken string) (runs []EndedRun) {
	ix.mu.RLock()
	defer ix.mu.RUnlock()
	s := ix.state
	for n := s.towns[s.townNumber(townToken)].last; n != 0; n = s.row(n).prevTown {
		if run, ends := s.endedRun(s.row(n)); ends {
			runs = append(runs, run)
		}
	}
	return runs
}

// OpenArrivals returns when the handoffs arrived that wait or are being applied in some towns, or in all if
// tokens is nil.
func (ix *Index) OpenArrivals(tokens []string) (arrived []time.Time) {
	ix.mu.RLock()
	defer ix.mu.RUnlock()
	for run := range ix.state.open {
		town := ix.state.first(run).town
		if tokens == nil || town != 0 && slices.Contains(tokens, ix.state.tokens.names[town]) {
			arrived = append(arrived, ix.state.arrived(run))
		}
	}
	return arrived
}

// HasOneRow reports whether a run has no more than one row.
func (ix *Index) HasOneRow(runID string) bool {
	hash := fingerprint(runID)
	ix.mu.RLock()
	defer ix.mu.RUnlock()
	run := ix.state.runs[ix.state.runNumber(hash)]
	return run.first == run.last
}
