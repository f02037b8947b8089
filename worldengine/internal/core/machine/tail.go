package machine

import (
	"maps"

	"worldengine/runevents"
	"worldengine/worldengine/internal/core/runlog"
)

// RunTail is the end of a run of the engine on the run's own subject.
type RunTail struct {
	Guard  uint64 // the log sequence of the last message there
	Stored int64  // the number of messages there
	Next   int64  // the runSeq of the next event
	keys   map[string]struct{}
	// Closed reports whether only the engine may go on with the run, Cancelled whether the run was
	// cancelled.
	Closed, Cancelled bool
	// FirstRecord is the record that began a run before its handoff was judged; nil if the run began
	// with the decision.
	FirstRecord *Record
	// Status is the run's status after the engine's events on the subject; "" if there are none.
	Status runevents.RunStatus
	// Pauses counts RunPaused on the subject. PausedAt is the runSeq of the last RunPaused if no
	// RunResumed follows on the subject, else 0. If the run waited to be judged, the record of the
	// decision has its RunResumed.
	Pauses, PausedAt int64
}

// NewTail returns the tail of a run. emitted is the number of the run's first events, which are in
// another record; run has the events on its own subject.
func NewTail(run *runlog.Run, emitted int64) *RunTail {
	t := &RunTail{Next: emitted + 1, keys: map[string]struct{}{}}
	if run != nil {
		t.know(run)
	}
	return t
}

// clone returns a copy that shares nothing that Add changes.
func (t *RunTail) clone() *RunTail {
	c := *t
	c.keys = maps.Clone(t.keys)
	return &c
}

// isWaiting reports whether the run waits to be judged. There may be no tail.
func (t *RunTail) isWaiting() bool {
	return t != nil && t.FirstRecord != nil && !t.Closed && !t.Cancelled
}

// Add adds a record on the run's own subject.
func (t *RunTail) Add(rec *Record, seq uint64) {
	t.Guard, t.Stored = seq, t.Stored+1
	t.Next = max(t.Next, rec.Run.FirstSeq+int64(len(rec.Run.Events)))
	t.know(rec.Run)
	if rec.Kind.Spec().Foreign || !rec.Kind.Known() {
		return
	}
	t.Closed = rec.Closing
	for i := range rec.Run.Events {
		t.apply(rec, rec.Run.Events[i].EventType, rec.Run.FirstSeq+int64(i))
	}
}

func (t *RunTail) know(run *runlog.Run) {
	for _, id := range runlog.EventIDs(run) {
		t.keys[id.IdempotencyKey] = struct{}{}
	}
}

// apply adds an event of the engine in a record.
func (t *RunTail) apply(rec *Record, event runevents.EventType, runSeq int64) {
	switch event {
	case runevents.RunQueued, runevents.RunStarted:
		if t.FirstRecord == nil {
			t.FirstRecord = rec
		}
	case runevents.RunPaused:
		t.Pauses++
		t.PausedAt = runSeq
	case runevents.RunResumed:
		t.PausedAt = 0
	case runevents.RunCancelled:
		t.Cancelled = true
	}
	if status, _ := runevents.NextRunStatus("", event); status != "" {
		t.Status = status
	}
}

// NewEvents returns the events of run that the run's own subject lacks.
func (t *RunTail) NewEvents(run *runlog.Run) []runlog.Event {
	var fresh []runlog.Event
	for i, id := range runlog.EventIDs(run) {
		if _, known := t.keys[id.IdempotencyKey]; !known {
			fresh = append(fresh, run.Events[i])
		}
	}
	return fresh
}
