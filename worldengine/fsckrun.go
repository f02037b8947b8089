package worldengine

import (
	"slices"
	"strconv"

	"github.com/nats-io/nats.go/jetstream"

	"worldengine/runevents"
)

// fsckRun is a run that has not ended, as far as the log was read.
type fsckRun struct {
	closed bool   // by its last record
	seq    uint64 // of the last message on the run's subject, 0 for none
	runSeq int64  // of the last event, whosever it is
	// story is what the engine's own events tell; nil where there was none.
	story *fsckStory
}

// run returns a run that has not ended, which is new where nothing is known of it.
func (l *fsckLog) run(runID string) *fsckRun {
	known := l.runs[runID]
	if known == nil {
		known = new(fsckRun)
		l.runs[runID] = known
	}
	return known
}

// adopt takes in a run by what is pending of it, where the record of its first commit is gone.
func (l *fsckLog) adopt(rec *record) {
	p := rec.Pending
	known := l.run(p.Run.RunID)
	switch {
	case known.story == nil:
		known.story = newFsckStory(rec.TownID, &p.Run)
		known.story.lose()
	case known.runSeq < p.Emitted:
		known.story.lose()
	}
	known.runSeq = max(known.runSeq, p.Emitted)
}

// takes checks that the events of a record come after those before them. Where there are events
// missing in between, their messages have expired or left their history.
func (r *fsckRun) takes(v *fsckVerdict, run *runevents.Run) {
	if r.runSeq > 0 && run.FirstSeq <= r.runSeq {
		v.want("the events do not come after those before them", "runSeq above "+text(r.runSeq), text(run.FirstSeq))
	}
	if run.FirstSeq > r.runSeq+1 && r.story != nil {
		r.story.lose()
	}
	r.runSeq = max(r.runSeq, run.FirstSeq+int64(len(run.Events))-1)
}

// onRunSubject checks the place of a record that stands on the subject of its run. A guard beyond the
// message before it is one that has expired.
func (l *fsckLog) onRunSubject(v *fsckVerdict, rec *record) {
	v.want("the events stand on the subject of another run", runSubject(l.world, rec.Run.RunID), v.message.Subject())
	known := l.run(rec.Run.RunID)
	header := v.message.Headers().Get(jetstream.ExpectedLastSubjSeqHeader)
	if guard, err := strconv.ParseUint(header, 10, 64); known.seq > 0 && (err != nil || guard < known.seq) {
		v.want("the append was not guarded by the run's message before it", strconv.FormatUint(known.seq, 10), header)
	}
	known.seq = v.message.seq
}

// appended checks a message with events that others than the engine appended. Whether they are valid
// transitions is not the log's to say: a projector deals with those that are not.
func (l *fsckLog) appended(v *fsckVerdict, rec *record) {
	l.counts.Appended++
	run, seen := rec.Run, newFsckSeen()
	if run == nil {
		v.noRun()
		return
	}
	l.onRunSubject(v, rec)
	known := l.run(run.RunID)
	if known.story != nil {
		seen.ids = known.story.seen.ids
	}
	v.checkEvents(run, seen)
	known.takes(v, run)
	switch {
	case known.story == nil && slices.ContainsFunc(run.Events, ends):
		delete(l.runs, run.RunID)
	case known.story != nil && slices.ContainsFunc(run.Events, couldBeEngines):
		known.story.lose() // the engine leaves out what others have told before it
	}
}

// between checks events of a run that the engine emitted between its commits, or a record that keeps
// others from going on with the run, or lets them again.
func (l *fsckLog) between(v *fsckVerdict, rec *record) {
	l.counts.RunRecords++
	run := rec.Run
	if run == nil || len(run.Events) == 0 && !rec.Closing && !l.wasClosed(run.RunID) {
		v.noRun()
		return
	}
	l.run(run.RunID).closed = rec.Closing
	l.onRunSubject(v, rec)
	l.tell(v, rec)
	for i := range run.Events {
		e := &run.Events[i]
		switch {
		case e.EventType == runevents.RunCancelled:
			v.want("a run that is cancelled is not closed to others", "true", strconv.FormatBool(rec.Closing))
			delete(l.runs, run.RunID)
		case e.EventType == runevents.RunPaused && payloadText(e.Payload, "signalId") == "":
			v.want("a paused run does not name the signal: "+eventText(run, i), "signalId", "")
		case !isBetween(e):
			v.want("an event is not one that is emitted between commits", "", eventText(run, i))
		}
	}
}

// wasClosed says whether the last record of a run closed it, as far as one is known.
func (l *fsckLog) wasClosed(runID string) bool {
	known := l.runs[runID]
	return known == nil || known.seq == 0 || known.closed
}

// isBetween says whether the engine emits such an event between its commits: a run that waits for the
// end of a pause, or another attempt.
func isBetween(e *runevents.Event) bool {
	switch e.EventType {
	case runevents.RunQueued, runevents.RunStarted, runevents.RunPaused:
		return true
	case runevents.StepFailed, runevents.StepStarted:
		return e.StepID == stepApply
	}
	return false
}

func ends(e runevents.Event) bool { return terminal(e.EventType) }

func terminal(event runevents.EventType) bool {
	switch event {
	case runevents.RunCompleted, runevents.RunFailed, runevents.RunCancelled:
		return true
	}
	return false
}

// couldBeEngines says whether the engine might emit an event with the key of e.
func couldBeEngines(e runevents.Event) bool {
	if e.EventType.OfStep() {
		return slices.Contains(fsckSteps[:], e.StepID)
	}
	target, _ := runevents.NextRunStatus("", e.EventType)
	return target != ""
}
