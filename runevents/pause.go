package runevents

import "fmt"

// pause is the reason of a run's pause, and the condition that ends it. It is immutable.
type pause struct {
	observed  Record // the event that does not continue the run
	watermark int64  // preResyncLastEventSeq: how far the snapshot is to be trusted
	mode      ResyncMode
}

// continues returns how many of the records can be applied before the first that skips a runSeq or
// came late.
func continues(s *Snapshot, records []Record) int {
	last := s.LastEventSeq
	for i := range records {
		r := &records[i]
		if DetectNonContiguous(last, r.RunSeq) || cameLate(s, r) {
			return i
		}
		last = max(last, r.RunSeq)
	}
	return len(records)
}

// cameLate reports whether r is below the watermark but was never applied.
func cameLate(s *Snapshot, r *Record) bool {
	return r.RunSeq <= s.LastEventSeq && r.EventType.known() && !s.seen(r.IdempotencyKey)
}

// newPause pauses a run whose snapshot observed does not continue.
func newPause(s *Snapshot, observed *Record) *pause {
	switch {
	case observed.RunSeq <= s.LastEventSeq:
		return &pause{observed: *observed, watermark: observed.RunSeq - 1, mode: Full}
	case s.LastEventSeq == 0:
		return &pause{observed: *observed, mode: Full}
	}
	return &pause{observed: *observed, watermark: s.LastEventSeq, mode: FromSnapshot}
}

// request is the resync that may end the pause.
func (p *pause) request(runID string) ResyncRequest {
	if p.mode == Full {
		return ResyncRequest{Mode: Full, RunID: runID}
	}
	return ResyncRequest{Mode: FromSnapshot, RunID: runID, SnapshotSeq: p.watermark}
}

func nonContiguous(live *liveRun) Alert {
	r := &live.pause.observed
	return NewAlert(NonContiguousFetch, r, fmt.Sprintf(
		"runSeq %d came when the watermark was %d; the run is read again", r.RunSeq,
		live.snapshot.LastEventSeq))
}
