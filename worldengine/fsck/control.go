package fsck

import (
	"strconv"
	"strings"

	"github.com/nats-io/nats.go/jetstream"

	"worldengine/runevents"
	"worldengine/worldengine/commitlog"
	"worldengine/worldengine/lifecycle"
	"worldengine/worldengine/machine"
	"worldengine/worldengine/wire"
)

// controlState is the world's pause by its last message; the zero one is unknown.
type controlState struct {
	seq    uint64
	paused *commitlog.PausedBy
}

// checkWorldControl checks a signal that paused or resumed the world.
func (l *LogCheck) checkWorldControl(v *Verdict, rec *commitlog.Record) {
	l.counts.Controls++
	v.want("the signal stands on another subject than the world's",
		wire.ControlSubject(l.world), v.message.Subject())
	prior := l.control
	l.control = controlState{seq: v.message.Seq, paused: rec.Paused}
	if prior.seq != 0 {
		v.before = prior.seq
		v.follows("the signal was not guarded by the one before it",
			strconv.FormatUint(prior.seq, 10),
			v.message.Headers().Get(jetstream.ExpectedLastSubjSeqHeader))
		v.step(rec, machine.Town{Seq: prior.seq, Paused: prior.paused})
	}
	v.checkSignalRun(rec, acceptedEvents)
}

// The events of a signal.
const (
	acceptedEvents = "RunStarted, SignalAccepted, RunCompleted"
	rejectedEvents = "RunStarted, SignalRejected, RunFailed"
)

// checkSignal checks a signal that changed no town's record: a refused one, or a cancellation.
func (l *LogCheck) checkSignal(v *Verdict, rec *commitlog.Record) {
	l.counts.Signals++
	v.want("the signal stands on another subject than the signals'",
		wire.SignalSubject(l.world), v.message.Subject())
	events := acceptedEvents
	if rec.Run != nil && typesText(rec.Run) == rejectedEvents {
		events = rejectedEvents
	}
	if !v.checkSignalRun(rec, events) {
		return
	}
	if events == rejectedEvents {
		if payloadText(rec.Run.Events[1].Payload, "code") == "" {
			v.want("a refused signal has no reason code: "+eventText(rec.Run, 1), "code", "")
		}
		return
	}
	v.wantPayload(rec.Run, 0, string(lifecycle.SignalCancel), "signal")
	if payloadText(rec.Run.Events[0].Payload, "runId") == "" {
		v.want("a cancellation does not name the run: "+eventText(rec.Run, 0), "runId", "")
	}
}

// checkSignalRun checks a signal's own run. It reports whether that has the events.
func (v *Verdict) checkSignalRun(rec *commitlog.Record, events string) bool {
	run := rec.Run
	if !v.checkEvents(run, newSeenEvents()) {
		return false
	}
	v.checkRunID(run)
	v.want("the run does not begin with its first event", "runSeq 1", "runSeq "+Text(run.FirstSeq))
	v.want("the run is not one of a signal",
		lifecycle.SignalPlan+" "+lifecycle.SignalVersion, run.PlanID+" "+run.PlanVersion)
	if got := typesText(run); got != events {
		v.want("the run does not have the events of a signal", events, got)
		return false
	}
	for i := range 2 {
		v.wantPayload(run, i, rec.TownID, "townId")
		v.wantPayload(run, i, payloadText(run.Events[0].Payload, "signal"), "signal")
		v.wantPayload(run, i, payloadText(run.Events[0].Payload, "runId"), "runId")
	}
	return true
}

// typesText lists the types of a record's events.
func typesText(run *runevents.Run) string {
	types := make([]string, len(run.Events))
	for i := range run.Events {
		types[i] = string(run.Events[i].EventType)
	}
	return strings.Join(types, ", ")
}
