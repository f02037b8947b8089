package fsck

import (
	"fmt"
	"slices"
	"strings"

	"worldengine/runevents"
	"worldengine/worldengine/apply"
	"worldengine/worldengine/commitlog"
	"worldengine/worldengine/machine"
)

// runState is a run that has not ended in the log so far.
type runState struct {
	runSeq int64  // of the last event of any producer
	seq    uint64 // of the last message on the run's subject, 0 for none
	// seen has the ids and idempotency keys of the events of an engine's run.
	seen map[string]bool
	// ofEngine reports whether the engine has emitted events of the run; the next members are only
	// about such a run.
	ofEngine bool
	town     string
	identity runevents.Identity
	accepted bool // its handoff was accepted, and the command given to a game
	// lost reports that records of the run are missing, or wrong. Otherwise tail is the end of the
	// run's own subject, and waits are the records there from before the handoff was judged.
	lost  bool
	tail  *machine.RunTail
	waits []*Verdict
}

// run returns a run that has not ended, a new one if it is not known.
func (l *LogCheck) run(runID string) *runState {
	known := l.Runs[runID]
	if known == nil {
		known = &runState{tail: machine.NewTail(nil, 0), seen: map[string]bool{}}
		l.Runs[runID] = known
	}
	return known
}

// checkRun checks the run of a record, and of its pending command, against the records before.
// It returns the record's run, or nil.
func (l *LogCheck) checkRun(v *Verdict) (r *runState) {
	rec := v.rec
	if rec.Run != nil {
		r = l.run(rec.Run.RunID)
		if rec.Kind != commitlog.KindEvents {
			r.own(v, rec.Run.Identity)
		}
		r.take(v)
		if r.isEndedBy(rec) {
			delete(l.Runs, rec.Run.RunID)
		}
	}
	if p := rec.Pending; p != nil {
		pending := l.run(p.Run.RunID)
		pending.own(v, p.Run)
		pending.accept(p)
	}
	return r
}

// own notes the identity of an engine's run, or checks it against the noted one.
func (r *runState) own(v *Verdict, identity runevents.Identity) {
	if !r.ofEngine {
		r.ofEngine, r.town, r.identity = true, v.rec.TownID, identity
		v.want("the id of the run is not a UUID v4", true, runevents.IsID(identity.RunID))
	}
	v.want("the run is not the one of its records before", fmt.Sprint(r.town, " ", r.identity),
		fmt.Sprint(v.rec.TownID, " ", identity))
}

// accept notes that the command of a run is being applied.
func (r *runState) accept(p *apply.Pending) {
	r.accepted = true
	r.lost = r.lost || r.runSeq < p.Emitted
	r.runSeq = max(r.runSeq, p.Emitted)
	r.tail.Next = max(r.tail.Next, p.Emitted+1)
}

// take checks the place of a record's events in their run, and that they are new there. The step
// shows whether the engine's events are valid transitions.
func (r *runState) take(v *Verdict) {
	kind, run := v.rec.Kind, v.rec.Run
	if kind == commitlog.KindEvents || kind == commitlog.KindRun {
		r.checkGuard(v)
	}
	if run.FirstSeq <= r.runSeq {
		v.want("the events do not come after the ones before them", fmt.Sprint("runSeq above ",
			r.runSeq), fmt.Sprint(run.FirstSeq))
	}
	r.lost = r.lost || run.FirstSeq > r.runSeq+1
	r.runSeq = max(r.runSeq, run.FirstSeq+int64(len(run.Events))-1)
	records, seen := run.Records(v.Time), r.seen
	if !r.ofEngine {
		seen = map[string]bool{} // for another producer's run, compare only the record's own events
	}
	for i := range records {
		id, key := records[i].EventID, records[i].IdempotencyKey
		v.want("an event, or its id, was there before: "+eventText(run, i), false,
			seen[id] || seen[key])
		seen[id], seen[key] = true, true
	}
}

// isEndedBy reports whether a record ends its run. The engine's record does, unless the run still
// waits or its command is still being applied.
func (r *runState) isEndedBy(rec *commitlog.Record) bool {
	ends := func(e runevents.Event) bool { return e.EventType.EndsRun() }
	switch rec.Kind {
	case commitlog.KindPending:
		return false
	case commitlog.KindRun:
		return slices.ContainsFunc(rec.Run.Events, ends)
	case commitlog.KindEvents:
		return !r.ofEngine && slices.ContainsFunc(rec.Run.Events, ends)
	}
	return true
}

// checkGuard checks the guard of a record on the run's own subject. A guard above the last
// message's sequence names a message that has expired.
func (r *runState) checkGuard(v *Verdict) {
	guard, ok := commitlog.GuardOf(v.Header)
	if r.seq > 0 && (!ok || guard < r.seq) {
		v.want("the append was not guarded by the run's message before it", r.seq, guard)
	}
	r.lost = r.lost || guard != r.seq
	r.seq = v.Sequence
}

// extend adds a checked record on the run's own subject.
func (r *runState) extend(v *Verdict) {
	if !r.ofEngine {
		return
	}
	r.tail.Add(v.rec, r.seq)
	if !r.accepted {
		r.waits = append(r.waits, v)
	}
}

// checkEvents checks the events of a record by themselves.
func (v *Verdict) checkEvents(run *runevents.Run) {
	for i, r := range run.Records(v.Time) {
		if err := r.Validate(); err != nil {
			v.want("an event is not valid: "+eventText(run, i), "", err.Error())
		}
	}
}

func eventText(run *runevents.Run, i int) string {
	e := &run.Events[i]
	return fmt.Sprintf("runSeq %d, %s attempt %d", run.FirstSeq+int64(i),
		strings.TrimSpace(string(e.EventType)+" "+e.StepID), e.LogicalAttemptID)
}
