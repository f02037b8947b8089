package worldengine

import (
	"strconv"
	"strings"

	"github.com/nats-io/nats.go/jetstream"

	"worldengine/runevents"
	"worldengine/worldengine/town"
)

// fsckControl is what the last message read of the world's pauses said; the zero one is not known.
type fsckControl struct {
	seq    uint64
	paused *PausedBy
}

// ofWorld checks a signal that paused or resumed the world.
func (l *fsckLog) ofWorld(v *fsckVerdict, rec *record) {
	l.counts.Controls++
	v.want("the signal stands on another subject than the world's", controlSubject(l.world), v.message.Subject())
	prior := l.control
	l.control = fsckControl{seq: v.message.seq, paused: rec.Paused}
	if prior.seq != 0 {
		v.before = prior.seq
		v.follows("the signal was not guarded by the one before it",
			strconv.FormatUint(prior.seq, 10), v.message.Headers().Get(jetstream.ExpectedLastSubjSeqHeader))
		v.switches(rec, prior.paused)
	}
	v.checkControl(rec)
}

// ofTownControl checks a signal that paused or resumed a town. Its state is checked as that of any record.
func (l *fsckLog) ofTownControl(v *fsckVerdict, rec *record, state *town.State, prior *fsckTown) {
	l.counts.Controls++
	v.checkControl(rec)
	switch {
	case prior.known:
		v.switches(rec, prior.paused)
	case rec.Pending != nil:
		v.checkAttempt(rec.Pending)
		v.checkApplication(rec, state)
		l.adopt(rec)
	}
}

// switches checks that a signal paused what was not paused, or resumed what was.
func (v *fsckVerdict) switches(rec *record, before *PausedBy) {
	v.follows("the signal found what it asks for", "paused "+strconv.FormatBool(rec.Paused == nil),
		"paused "+strconv.FormatBool(before != nil))
}

// checkControl checks that the run of a signal that was accepted says what its record does.
func (v *fsckVerdict) checkControl(rec *record) {
	kind := SignalResume
	if rec.Paused != nil {
		kind = SignalPause
	}
	if !v.checkSignalRun(rec, acceptedEvents) {
		return
	}
	run := rec.Run
	v.says(run, 0, string(kind), "signal")
	if p := rec.Paused; p != nil {
		v.want("the pause names another run than its signal's", run.RunID, p.SignalID)
		v.says(run, 0, p.ActorID, "actorId")
		v.says(run, 0, p.Reason, "reason")
	}
}

// The events of a signal.
const (
	acceptedEvents = "RunStarted, SignalAccepted, RunCompleted"
	rejectedEvents = "RunStarted, SignalRejected, RunFailed"
)

// signal checks a signal that changed no town's record: a refused one, or a cancellation.
func (l *fsckLog) signal(v *fsckVerdict, rec *record) {
	l.counts.Signals++
	v.want("the signal stands on another subject than the signals'", signalSubject(l.world), v.message.Subject())
	events := acceptedEvents
	if rec.Run != nil && typesText(rec.Run) == rejectedEvents {
		events = rejectedEvents
	}
	if !v.checkSignalRun(rec, events) {
		return
	}
	if events == rejectedEvents {
		if payloadText(rec.Run.Events[1].Payload, "code") == "" {
			v.want("a refused signal does not say why: "+eventText(rec.Run, 1), "code", "")
		}
		return
	}
	v.says(rec.Run, 0, string(SignalCancel), "signal")
	if payloadText(rec.Run.Events[0].Payload, "runId") == "" {
		v.want("a cancellation does not name the run: "+eventText(rec.Run, 0), "runId", "")
	}
}

// checkSignalRun checks the run of a signal, which is one of its own. It says whether that has the events.
func (v *fsckVerdict) checkSignalRun(rec *record, events string) bool {
	run := rec.Run
	if !v.checkEvents(run, newFsckSeen()) {
		return false
	}
	v.checkRunID(run)
	v.want("the run does not begin with its first event", "runSeq 1", "runSeq "+text(run.FirstSeq))
	v.want("the run is not one of a signal", "signal "+signalVersion, run.PlanID+" "+run.PlanVersion)
	if got := typesText(run); got != events {
		v.want("the run does not tell what became of the signal", events, got)
		return false
	}
	for i := range 2 {
		v.says(run, i, rec.TownID, "townId")
		v.says(run, i, payloadText(run.Events[0].Payload, "signal"), "signal")
		v.says(run, i, payloadText(run.Events[0].Payload, "runId"), "runId")
	}
	return true
}

// typesText renders the types of a record's events.
func typesText(run *runevents.Run) string {
	types := make([]string, len(run.Events))
	for i := range run.Events {
		types[i] = string(run.Events[i].EventType)
	}
	return strings.Join(types, ", ")
}
