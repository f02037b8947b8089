package fsck

import (
	"strings"

	"worldengine/handoff"
	"worldengine/runevents"
	"worldengine/worldengine/commitlog"
	"worldengine/worldengine/lifecycle"
)

// runReplay is a run as the engine's events make it, over all of its records: its status, the
// statuses of its steps, and the payloads that have to agree with its result.
type runReplay struct {
	town     string
	identity runevents.Identity
	status   runevents.RunStatus
	steps    map[stepAttempt]runevents.StepStatus
	attempt  int64 // the last attempt to apply the command that has an event
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

// replay adds the events of a record of the engine to the replay of their run, and returns that;
// nil if the record has no run. The caller removes a run that has ended.
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

// checkBeginning checks that what begins a run is its first event. A run that was recorded while it
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
	if e.StepID == lifecycle.StepApply {
		s.attempt = max(s.attempt, step.attempt)
	}
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

// text renders the statuses of the run and the engine's steps, as far as a replay knows them.
func (s *runReplay) text(known *runReplay) string {
	var parts []string
	if known.status != "" || !known.lost {
		parts = append(parts, "run "+string(s.status))
	}
	add := func(id, name string, attempt int64) {
		step := stepAttempt{id, attempt}
		if known.steps[step] != "" || !known.lost {
			parts = append(parts, name+" "+string(s.steps[step]))
		}
	}
	for _, id := range steps {
		add(id, id, 1)
	}
	for attempt := int64(2); attempt <= known.attempt; attempt++ {
		add(lifecycle.StepApply, lifecycle.StepApply+" "+Text(attempt), attempt)
	}
	return strings.Join(parts, ", ")
}

// replayUntilApplied is the state of a run when its command begins to be applied.
func replayUntilApplied() *runReplay {
	s := newRunReplay("", new(runevents.Identity))
	s.status = runevents.RunRunning
	for _, id := range steps {
		s.steps[stepAttempt{id, 1}] = runevents.StepSucceeded
	}
	s.steps[stepAttempt{lifecycle.StepApply, 1}] = runevents.StepRunning
	return s
}

// replayUntilCancelled is the state of a run that was cancelled in an attempt to apply its command.
func replayUntilCancelled(attempts int64) *runReplay {
	s := replayUntilApplied()
	s.status = runevents.RunAborted
	for attempt := range max(attempts, 1) {
		s.steps[stepAttempt{lifecycle.StepApply, attempt + 1}] = runevents.StepHasFailed
	}
	return s
}

// replayOf is the end that a result demands of its run, the command having been tried so often.
func replayOf(r *handoff.Result, attempts int64) *runReplay {
	checked := func(evaluated bool) runevents.StepStatus {
		if evaluated {
			return runevents.StepSucceeded
		}
		return runevents.StepWasSkipped
	}
	s := newRunReplay("", new(runevents.Identity))
	s.status = runevents.RunSucceeded
	evaluated := &r.Evaluation
	for id, check := range map[string]bool{
		lifecycle.StepDuplicate:    evaluated.DuplicateCheck.Evaluated,
		lifecycle.StepStale:        evaluated.StaleCheck.Evaluated,
		lifecycle.StepPrecondition: evaluated.Preconditions.Evaluated,
	} {
		s.steps[stepAttempt{id, 1}] = checked(check)
	}
	for attempt := range attempts {
		s.steps[stepAttempt{lifecycle.StepApply, attempt + 1}] = runevents.StepHasFailed
	}
	last := stepAttempt{lifecycle.StepApply, max(attempts, 1)}
	s.steps[last] = checked(r.Accepted)
	if r.Status == handoff.Failed {
		s.status, s.steps[last] = runevents.RunHasFailed, runevents.StepHasFailed
	}
	return s
}

// checkEnd checks that the run, and the payloads of its events, end as its result says.
func (s *runReplay) checkEnd(v *Verdict, rec *commitlog.Record, r *handoff.Result) {
	v.want("the run is of another plan than the result", r.ProposalID, rec.Run.PlanID)
	for i := range s.payloads {
		v.checkPayload(s, &s.payloads[i], r)
	}
	s.checkRetry(v, rec.RetryOf)
	v.want("the run does not end as its result says", replayOf(r, s.attempt).text(s), s.text(s))
}
