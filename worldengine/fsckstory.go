package worldengine

import (
	"strings"

	"worldengine/handoff"
	"worldengine/runevents"
)

// fsckStory is what the engine's events tell of a run, over all of its records: where they lead to, and
// what its result has to say once there is one.
type fsckStory struct {
	town     string
	identity runevents.Identity
	status   runevents.RunStatus
	steps    map[fsckStep]runevents.StepStatus
	attempt  int64 // the last one to apply the command that is told of
	seen     fsckSeen
	claims   []fsckClaim
	// lost says that not all records of the run are there. Then a status that is not known may be any.
	lost bool
}

// fsckStep is a logical attempt of a step.
type fsckStep struct {
	id      string
	attempt int64
}

// fsckSteps are the engine's steps, in order.
var fsckSteps = [...]string{stepDuplicate, stepStale, stepPrecondition, stepApply}

func newFsckStory(townID string, identity *runevents.Identity) *fsckStory {
	return &fsckStory{
		town: townID, identity: *identity, status: runevents.RunPending,
		steps: map[fsckStep]runevents.StepStatus{}, seen: newFsckSeen(),
	}
}

// lose forgets where the run is: a record is missing or wrong, or others have told what the engine does
// not tell again then.
func (s *fsckStory) lose() {
	s.lost, s.status = true, ""
	clear(s.steps)
}

// tell takes the events of a record of the engine's into the story of their run, and returns that; nil
// where the record has no run. It is for the caller to say that the run has ended.
func (l *fsckLog) tell(v *fsckVerdict, rec *record) *fsckStory {
	run := rec.Run
	if run == nil {
		v.noRun()
		return nil
	}
	v.checkRunID(run)
	known := l.run(run.RunID)
	if known.story == nil {
		known.story = newFsckStory(rec.TownID, &run.Identity)
		if known.runSeq > 0 {
			known.story.lose() // only what others appended is left
		}
	}
	s := known.story
	v.want("the run is of another town than before", s.town, rec.TownID)
	v.want("the run is not the one that its records before it say", identityText(&s.identity), identityText(&run.Identity))
	if len(run.Events) == 0 { // others have told all, or there is nothing to tell
		v.checkPlace(run)
	} else {
		v.checkEvents(run, s.seen)
		v.checkBeginning(run)
	}
	known.takes(v, run)
	for i := range run.Events {
		s.move(v, run, i)
		s.claims = append(s.claims, fsckClaim{
			v.message.seq, v.message.Subject(), run.FirstSeq + int64(i), &run.Events[i],
		})
	}
	return s
}

// checkBeginning checks that what begins a run is its first event.
func (v *fsckVerdict) checkBeginning(run *runevents.Run) {
	switch run.Events[0].EventType {
	case runevents.RunQueued, runevents.RunStarted:
		v.want("the run does not begin with its first event", "runSeq 1", "runSeq "+text(run.FirstSeq))
	}
}

// move makes the transition of event i.
func (s *fsckStory) move(v *fsckVerdict, run *runevents.Run, i int) {
	e := &run.Events[i]
	if !e.EventType.OfStep() {
		s.moveRun(v, run, i)
		return
	}
	step := fsckStep{e.StepID, e.LogicalAttemptID}
	if e.StepID == stepApply {
		s.attempt = max(s.attempt, step.attempt)
	}
	now, known := s.steps[step]
	if !known {
		now = runevents.StepPending
	}
	next, valid := runevents.NextStepStatus(now, e.EventType)
	running := s.status == runevents.RunRunning || s.lost && s.status == ""
	if !running || !valid && (known || !s.lost) {
		v.want("an event is not a valid transition", string(now), eventText(run, i))
		s.lose()
	}
	s.steps[step] = next
}

func (s *fsckStory) moveRun(v *fsckVerdict, run *runevents.Run, i int) {
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

// text renders where the run and the engine's steps are, as far as that is known of a story.
func (s *fsckStory) text(known *fsckStory) string {
	var parts []string
	if known.status != "" || !known.lost {
		parts = append(parts, "run "+string(s.status))
	}
	tell := func(id, name string, attempt int64) {
		step := fsckStep{id, attempt}
		if known.steps[step] != "" || !known.lost {
			parts = append(parts, name+" "+string(s.steps[step]))
		}
	}
	for _, id := range fsckSteps {
		tell(id, id, 1)
	}
	for attempt := int64(2); attempt <= known.attempt; attempt++ {
		tell(stepApply, stepApply+" "+text(attempt), attempt)
	}
	return strings.Join(parts, ", ")
}

// applyingStory is where a run is when its command begins to be applied.
func applyingStory() *fsckStory {
	s := newFsckStory("", new(runevents.Identity))
	s.status = runevents.RunRunning
	for _, id := range fsckSteps {
		s.steps[fsckStep{id, 1}] = runevents.StepSucceeded
	}
	s.steps[fsckStep{stepApply, 1}] = runevents.StepRunning
	return s
}

// storyOf is where the run of a result has to end, the command having been tried so often.
func storyOf(r *handoff.Result, attempts int64) *fsckStory {
	checked := func(evaluated bool) runevents.StepStatus {
		if evaluated {
			return runevents.StepSucceeded
		}
		return runevents.StepWasSkipped
	}
	s := newFsckStory("", new(runevents.Identity))
	s.status = runevents.RunSucceeded
	s.steps[fsckStep{stepDuplicate, 1}] = checked(r.Evaluation.DuplicateCheck.Evaluated)
	s.steps[fsckStep{stepStale, 1}] = checked(r.Evaluation.StaleCheck.Evaluated)
	s.steps[fsckStep{stepPrecondition, 1}] = checked(r.Evaluation.Preconditions.Evaluated)
	for attempt := range attempts {
		s.steps[fsckStep{stepApply, attempt + 1}] = runevents.StepHasFailed
	}
	last := fsckStep{stepApply, max(attempts, 1)}
	s.steps[last] = checked(r.Accepted)
	if r.Status == handoff.Failed {
		s.status, s.steps[last] = runevents.RunHasFailed, runevents.StepHasFailed
	}
	return s
}

// ends checks that the run ends as its result says, and tells what that does.
func (s *fsckStory) ends(v *fsckVerdict, rec *record, r *handoff.Result) {
	v.want("the run is of another plan than the result", r.ProposalID, rec.Run.PlanID)
	for i := range s.claims {
		v.claims(s, &s.claims[i], r)
	}
	v.want("the run does not end as its result says", storyOf(r, s.attempt).text(s), s.text(s))
}
