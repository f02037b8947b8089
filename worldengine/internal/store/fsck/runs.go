package fsck

import (
	"fmt"
	"slices"
	"strings"

	"worldengine/runevents"
	"worldengine/worldengine/internal/core/machine"
	"worldengine/worldengine/internal/core/runlog"
	"worldengine/worldengine/internal/store/commitlog"
)

// runState is a run that has not ended in the log so far.
type runState struct {
	// tail is the end of the run's own subject, except that its Next counts all events of the run.
	tail *machine.RunTail
	// seen has the ids and idempotency keys of the events of an engine's run.
	seen map[string]bool
	// engineOwned reports whether the engine has emitted events of the run; the next members are only
	// about such a run.
	engineOwned bool
	accepted    bool       // its handoff was accepted, and the command given to a game
	town        string     // the town of the accepted handoff
	incomplete  bool       // records of the run are missing, or wrong
	waitRecords []*message // the messages on the run's own subject before the handoff was judged
}

// run returns a run that has not ended, a new one if it is not known.
func (l *LogChecker) run(runID string) *runState {
	known := l.Runs[runID]
	if known == nil {
		known = &runState{tail: machine.NewTail(nil, 0), seen: map[string]bool{}}
		l.Runs[runID] = known
	}
	return known
}

// checkRun checks the place of a record in its run, and notes the run of the pending command. It
// returns the record's run, or nil.
func (l *LogChecker) checkRun(v *message) (r *runState) {
	rec := v.rec
	if rec.Run != nil {
		r = l.run(rec.Run.RunID)
		r.check(v)
		if isEndedBy(r, rec) {
			delete(l.Runs, rec.Run.RunID)
		}
	}
	if p := rec.Pending; p != nil {
		pending := l.run(p.Run.RunID)
		pending.engineOwned, pending.accepted, pending.town = true, true, rec.TownID
		pending.incomplete = pending.incomplete || pending.tail.Next <= p.Emitted
		pending.tail.Next = max(pending.tail.Next, p.Emitted+1)
	}
	return r
}

// check checks the place of a record's events in their run, and that they are new there. The step
// shows whether the engine's events are valid transitions.
func (r *runState) check(v *message) {
	spec, run := v.rec.Kind.Spec(), v.rec.Run
	onRunSubject := spec.Subject == machine.RunSubject
	if !spec.Foreign && !r.engineOwned {
		r.engineOwned = true
		if !runevents.IsID(run.RunID) {
			v.expectEqual("the id of the run is not a UUID v4", "a UUID v4", run.RunID)
		}
	}
	if onRunSubject {
		r.checkGuard(v)
	}
	if run.FirstSeq < r.tail.Next {
		v.expectEqual("the events do not come after the ones before them", fmt.Sprint("runSeq above ",
			r.tail.Next-1), fmt.Sprint(run.FirstSeq))
	}
	r.incomplete = r.incomplete || run.FirstSeq > r.tail.Next
	if !onRunSubject { // else extend does so, since the step needs the end before the record
		r.tail.Next = max(r.tail.Next, run.FirstSeq+int64(len(run.Events)))
	}
	records, seen := run.Records(v.Time), r.seen
	if !r.engineOwned {
		seen = map[string]bool{} // for another producer's run, compare only the record's own events
	}
	for i := range records {
		id, key := records[i].EventID, records[i].IdempotencyKey
		v.expectEqual("an event, or its id, was there before: "+eventText(run, i), false,
			seen[id] || seen[key])
		seen[id], seen[key] = true, true
	}
}

// isEndedBy reports whether a record ends its run. The engine's record does, unless the run still
// waits or its command is still being applied.
func isEndedBy(r *runState, rec *machine.Record) bool {
	spec := rec.Kind.Spec()
	return !spec.LeavesRunOpen || (!spec.Foreign || !r.engineOwned) &&
		slices.ContainsFunc(rec.Run.Events, func(e runlog.Event) bool { return e.EventType.EndsRun() })
}

// checkGuard checks the guard of a record on the run's own subject. A guard above the last
// message's sequence names a message that has expired.
func (r *runState) checkGuard(v *message) {
	guard, ok := commitlog.GuardOf(v.Header)
	if last := r.tail.Guard; last > 0 && (!ok || guard < last) {
		v.expectEqual("the append was not guarded by the run's message before it", last, guard)
	}
	r.incomplete = r.incomplete || guard != r.tail.Guard
}

// extend adds a checked record on the run's own subject. Of another producer's run it keeps no keys,
// since no step needs them.
func (r *runState) extend(v *message) {
	if !r.engineOwned {
		run := v.rec.Run
		r.tail.Guard, r.tail.Next = v.Sequence, max(r.tail.Next, run.FirstSeq+int64(len(run.Events)))
		return
	}
	r.tail.Add(v.rec, v.Sequence)
	if !r.accepted {
		r.waitRecords = append(r.waitRecords, v)
	}
}

// checkEvents checks the events of a record by themselves.
func (v *message) checkEvents(run *runlog.Run) {
	for i, r := range run.Records(v.Time) {
		if err := r.Validate(); err != nil {
			v.expectEqual("an event is not valid: "+eventText(run, i), "", err.Error())
		}
	}
}

func eventText(run *runlog.Run, i int) string {
	e := &run.Events[i]
	return fmt.Sprintf("runSeq %d, %s attempt %d", run.FirstSeq+int64(i),
		strings.TrimSpace(string(e.EventType)+" "+e.StepID), e.LogicalAttemptID)
}
