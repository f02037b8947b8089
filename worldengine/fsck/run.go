package fsck

import (
	"maps"
	"slices"
	"strconv"
	"time"

	"github.com/nats-io/nats.go/jetstream"

	"worldengine/runevents"
	"worldengine/worldengine/commitlog"
	"worldengine/worldengine/lifecycle"
	"worldengine/worldengine/wire"
)

// runState is a run that has not ended in the log so far.
type runState struct {
	closed bool   // by its last record
	seq    uint64 // of the last message on the run's subject, 0 for none
	runSeq int64  // of the last event, whosever it is
	stored time.Time
	// replay is the run by the engine's own events; nil if there was none.
	replay *runReplay
}

// run returns a run that has not ended, a new one if it is not known.
func (l *LogCheck) run(runID string) *runState {
	known := l.Runs[runID]
	if known == nil {
		known = new(runState)
		l.Runs[runID] = known
	}
	return known
}

// adopt adds a run by its pending handoff, since the record of its first commit is gone.
func (l *LogCheck) adopt(rec *commitlog.Record) {
	p := rec.Pending
	known := l.run(p.Run.RunID)
	switch {
	case known.replay == nil:
		known.replay = newRunReplay(rec.TownID, &p.Run)
		known.replay.lose()
	case known.runSeq < p.Emitted:
		known.replay.lose()
	}
	known.runSeq = max(known.runSeq, p.Emitted)
}

// checkOrder checks that a record's events come after those before them. Events that are missing in
// between have expired or left their history.
func (r *runState) checkOrder(v *Verdict, run *runevents.Run) {
	if r.runSeq > 0 && run.FirstSeq <= r.runSeq {
		v.want("the events do not come after those before them",
			"runSeq above "+Text(r.runSeq), Text(run.FirstSeq))
	}
	if run.FirstSeq > r.runSeq+1 && r.replay != nil {
		r.replay.lose()
	}
	r.runSeq = max(r.runSeq, run.FirstSeq+int64(len(run.Events))-1)
}

// onRunSubject checks the place of a record on the subject of its run. A guard beyond the message
// before it belongs to an expired one.
func (l *LogCheck) onRunSubject(v *Verdict, rec *commitlog.Record) {
	v.want("the events stand on the subject of another run",
		wire.RunSubject(l.world, rec.Run.RunID), v.message.Subject())
	known := l.run(rec.Run.RunID)
	header := v.message.Headers().Get(jetstream.ExpectedLastSubjSeqHeader)
	guard, err := strconv.ParseUint(header, 10, 64)
	if known.seq > 0 && (err != nil || guard < known.seq) {
		v.want("the append was not guarded by the run's message before it",
			strconv.FormatUint(known.seq, 10), header)
	}
	known.seq, known.stored = v.message.Seq, v.message.Stored
}

// waitingLimit is how long a run may wait after its last record before it counts as left: live
// servers end such runs within seconds, or renew their claims.
const waitingLimit = 2 * time.Minute

// leftWaiting returns the runs that have waited since a time or longer, though no command is being
// applied to their town.
func (l *LogCheck) leftWaiting(since time.Time) (left []Finding) {
	for _, runID := range slices.Sorted(maps.Keys(l.Runs)) {
		run := l.Runs[runID]
		if run.replay == nil || run.seq == 0 || run.stored.After(since) ||
			l.towns[wire.LogSubject(l.world, wire.TownToken(run.replay.town))].town.Pending != nil ||
			run.replay.status != runevents.RunPending &&
				run.replay.status != runevents.RunIsPaused {
			continue
		}
		left = append(left, Finding{
			Kind: LeftWaiting, Stream: wire.LogStream(l.world), Sequence: run.seq,
			Subject: wire.RunSubject(l.world, runID), Town: run.replay.town,
			What: "a run waits since " + runevents.Timestamp(run.stored) + ", and no server has it",
			Want: "an end", Got: string(run.replay.status),
		})
	}
	return left
}

// checkAppended checks a message with events of other producers. Projectors check whether they are
// valid transitions: the log accepts all.
func (l *LogCheck) checkAppended(v *Verdict, rec *commitlog.Record) {
	l.counts.Appended++
	run, seen := rec.Run, newSeenEvents()
	if run == nil {
		v.noRun()
		return
	}
	l.onRunSubject(v, rec)
	known := l.run(run.RunID)
	if known.replay != nil {
		seen.ids = known.replay.seen.ids
	}
	v.checkEvents(run, seen)
	v.checkForged(run, known.replay != nil)
	known.checkOrder(v, run)
	switch {
	case known.replay == nil && slices.ContainsFunc(run.Events, ends):
		delete(l.Runs, run.RunID)
	case known.replay != nil && slices.ContainsFunc(run.Events, couldBeEngines):
		known.replay.lose() // the engine emits no event that others have appended before it
	}
}

// checkForged reports events of others that only the engine emits: the append authority accepts
// none of them.
func (v *Verdict) checkForged(run *runevents.Run, ofEngine bool) {
	ofEngine = ofEngine || lifecycle.IsEnginePlan(run.PlanID, run.PlanVersion)
	for i := range run.Events {
		e := &run.Events[i]
		ofOthers := e.StepID != "" && !slices.Contains(steps[:], e.StepID)
		if e.EventType.Spec().OfEngine || ofEngine && !ofOthers {
			v.want("others appended an event that only the engine emits", "", eventText(run, i))
		}
	}
}

// checkBetween checks a run's events that the engine emitted between its commits, or a record that
// closes the run to others, or reopens it.
func (l *LogCheck) checkBetween(v *Verdict, rec *commitlog.Record) {
	l.counts.RunRecords++
	run := rec.Run
	if run == nil || len(run.Events) == 0 && !rec.Closing && !l.wasClosed(run.RunID) {
		v.noRun()
		return
	}
	l.run(run.RunID).closed = rec.Closing
	l.onRunSubject(v, rec)
	l.replay(v, rec)
	for i := range run.Events {
		e := &run.Events[i]
		switch {
		case e.EventType == runevents.RunCancelled:
			v.want("a run that is cancelled is not closed to others",
				"true", strconv.FormatBool(rec.Closing))
			delete(l.Runs, run.RunID)
		case e.EventType == runevents.RunPaused && payloadText(e.Payload, "signalId") == "":
			v.want("a paused run does not name the signal: "+eventText(run, i), "signalId", "")
		case e.EventType == runevents.StepFailed && payloadText(e.Payload, "error", "code") == "":
			v.want(eventDiffers+eventText(run, i), "a code", "")
		case !isBetween(e):
			v.want("an event is not one that is emitted between commits", "", eventText(run, i))
		}
	}
}

// wasClosed reports whether the last known record of a run closed it.
func (l *LogCheck) wasClosed(runID string) bool {
	known := l.Runs[runID]
	return known == nil || known.seq == 0 || known.closed
}

// isBetween reports whether the engine emits such an event between its commits: of a run that waits
// for the end of a pause, of one that is paused while its command is applied, or of another
// attempt.
func isBetween(e *runevents.Event) bool {
	switch e.EventType {
	case runevents.RunQueued, runevents.RunStarted, runevents.RunPaused, runevents.RunResumed:
		return true
	case runevents.StepFailed, runevents.StepStarted:
		return e.StepID == lifecycle.StepApply
	}
	return false
}

func ends(e runevents.Event) bool { return e.EventType.EndsRun() }

// couldBeEngines reports whether the engine might emit an event with the key of e.
func couldBeEngines(e runevents.Event) bool {
	if e.EventType.OfStep() {
		return slices.Contains(steps[:], e.StepID)
	}
	target, _ := runevents.NextRunStatus("", e.EventType)
	return target != ""
}
