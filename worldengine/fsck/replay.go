package fsck

import (
	"worldengine/handoff"
	"worldengine/runevents"
	"worldengine/worldengine/commitlog"
	"worldengine/worldengine/lifecycle"
)

// runReplay is a run by the engine's events in all of its records: its status, the statuses of its
// steps, and its events.
type runReplay struct {
	town     string
	identity runevents.Identity
	status   runevents.RunStatus
	steps    map[stepAttempt]runevents.StepStatus
	seen     seenEvents
	payloads []payloadCheck
	// lost reports that records of the run are missing. Then an unknown status may be any.
	lost bool
}

// stepAttempt is a logical attempt of a step.
type stepAttempt struct {
	id      string
	attempt int64
}

// steps are the engine's steps, in order.
var steps = [...]string{lifecycle.StepDuplicate, lifecycle.StepStale, lifecycle.StepPrecondition,
	lifecycle.StepApply}

func newRunReplay(townID string, identity *runevents.Identity) *runReplay {
	return &runReplay{
		town: townID, identity: *identity, status: runevents.RunPending,
		steps: map[stepAttempt]runevents.StepStatus{}, seen: newSeenEvents(),
	}
}

// lose makes the status of the run and its steps unknown: a record is missing or wrong, or others
// have appended events that the engine then does not emit again.
func (s *runReplay) lose() {
	s.lost, s.status = true, ""
	clear(s.steps)
}

// replay adds an engine record's events to the replay of their run, and returns that; nil if the
// record has no run. The caller removes a run that has ended.
func (l *LogCheck) replay(v *Verdict, rec *commitlog.Record) *runReplay {
	run := rec.Run
	if run == nil {
		v.noRun()
		return nil
	}
	v.checkRunID(run)
	known := l.run(run.RunID)
	if known.replay == nil {
		known.replay = newRunReplay(rec.TownID, &run.Identity)
		if known.runSeq > 0 {
			known.replay.lose() // only what others appended is left
		}
	}
	s := known.replay
	v.want("the run is of another town than before", s.town, rec.TownID)
	v.want("the run's identity is not the one of its records before",
		identityText(&s.identity), identityText(&run.Identity))
	if len(run.Events) == 0 { // others have appended all of them, or there are none
		v.checkPlace(run)
	} else {
		v.checkEvents(run, s.seen)
		v.checkBeginning(run)
	}
	known.checkOrder(v, run)
	for i := range run.Events {
		s.move(v, run, i)
		s.payloads = append(s.payloads, payloadCheck{
			v.message.Seq, v.message.Subject(), run.FirstSeq + int64(i), &run.Events[i],
		})
	}
	return s
}

// checkBeginning checks that a run begins with its first event. A run that was recorded while it
// waited starts behind that.
func (v *Verdict) checkBeginning(run *runevents.Run) {
	if run.Events[0].EventType == runevents.RunQueued {
		v.want("the run does not begin with its first event",
			"runSeq 1", "runSeq "+Text(run.FirstSeq))
	}
}

// move makes the transition of event i.
func (s *runReplay) move(v *Verdict, run *runevents.Run, i int) {
	e := &run.Events[i]
	if !e.EventType.OfStep() {
		s.moveRun(v, run, i)
		return
	}
	step := stepAttempt{e.StepID, e.LogicalAttemptID}
	now, known := s.steps[step]
	if !known {
		now = runevents.StepPending
	}
	next, valid := runevents.NextStepStatus(now, e.EventType)
	running := s.status == runevents.RunRunning || s.lost && s.status == "" ||
		s.status == runevents.RunIsPaused && drains(e.EventType)
	if !running || !valid && (known || !s.lost) {
		v.want("an event is not a valid transition", string(now), eventText(run, i))
		s.lose()
	}
	s.steps[step] = next
}

// drains reports whether an event ends an attempt that was in flight when its run was paused.
func drains(event runevents.EventType) bool {
	return event == runevents.StepCompleted || event == runevents.StepFailed
}

func (s *runReplay) moveRun(v *Verdict, run *runevents.Run, i int) {
	event := run.Events[i].EventType
	next, valid := runevents.NextRunStatus(s.status, event)
	if target, _ := runevents.NextRunStatus("", event); target == "" {
		return // of an unknown type
	}
	if !valid && (s.status != "" || !s.lost) {
		v.want("an event is not a valid transition", string(s.status), eventText(run, i))
		s.lose()
	}
	s.status = next
}

// checkStart checks that the events before a record of a run are about the handoff of the record's
// result.
func (s *runReplay) checkStart(v *Verdict, r *handoff.Result) {
	for i := range s.payloads {
		c := &s.payloads[i]
		ofStart := c.event.EventType == runevents.RunStarted ||
			c.event.EventType == runevents.RunQueued && c.event.Payload != nil
		if ofStart && c.seq != v.message.Seq {
			v.payloadHas(c, s.town, "townId")
			v.payloadHas(c, r.HandoffID, "handoffId")
			v.payloadHas(c, r.Command, "command")
		}
	}
}
