package worldengine

import (
	"bytes"
	"strconv"
	"strings"
	"time"

	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"
	"github.com/google/uuid"
	"github.com/nats-io/nats.go/jetstream"

	"worldengine/handoff"
	"worldengine/runevents"
	"worldengine/schemas"
)

// fsckRun is what the last message that was appended to a run said.
type fsckRun struct {
	seq    uint64
	runSeq int64 // of its last event
}

// appended checks a message with events that others than the engine appended. Whether they are valid
// transitions is not the log's to say: a projector deals with those that are not.
func (l *fsckLog) appended(v *fsckVerdict, rec *record) {
	if !checkEvents(v, rec) {
		return
	}
	run := rec.Run
	v.want("the events stand on the subject of another run",
		runSubject(l.world, run.RunID), v.message.Subject())
	if prior, known := l.runs[run.RunID]; known {
		v.before = prior.seq
		v.follows("the append was not guarded by the run's message before it",
			strconv.FormatUint(prior.seq, 10), v.message.Headers().Get(jetstream.ExpectedLastSubjSeqHeader))
		if run.FirstSeq <= prior.runSeq {
			v.follows("the events do not come after those before them",
				"runSeq above "+text(prior.runSeq), text(run.FirstSeq))
		}
	}
	l.runs[run.RunID] = fsckRun{seq: v.message.seq, runSeq: run.FirstSeq + int64(len(run.Events)) - 1}
	for i := range run.Events {
		if terminal(run.Events[i].EventType) {
			delete(l.runs, run.RunID)
		}
	}
}

// fsckEventKey is what two events of a run do not share: it is what their idempotency keys hash
// that differs within a run.
type fsckEventKey struct {
	event   runevents.EventType
	step    string
	attempt int64
}

// checkEvents checks the events of a record by themselves, and says whether there are any.
func checkEvents(v *fsckVerdict, rec *record) bool {
	run := rec.Run
	if run == nil || len(run.Events) == 0 {
		v.want("the record has no run", "events", "")
		return false
	}
	v.want("the header does not name the run", run.RunID, v.message.Headers().Get(RunIDHeader))
	if run.FirstSeq < 1 {
		v.want("the run's events have no place", "1 or later", text(run.FirstSeq))
	}
	ids, keys := map[string]bool{}, map[fsckEventKey]bool{}
	for i := range run.Events {
		e := &run.Events[i]
		key := fsckEventKey{e.EventType, e.StepID, e.LogicalAttemptID}
		switch {
		case ids[e.EventID]:
			v.want("two events have one id", "", eventText(run, i)+" "+e.EventID)
		case keys[key]:
			v.want("two events have one idempotency key", "", eventText(run, i))
		case !isUUIDv4(e.EventID):
			v.want("the id of an event is not a UUID v4", "", eventText(run, i)+" "+e.EventID)
		}
		ids[e.EventID], keys[key] = true, true
		if _, err := time.Parse(time.RFC3339, e.EmittedAt); err != nil || !strings.HasSuffix(e.EmittedAt, "Z") {
			v.want("the time of an event is not RFC 3339 in UTC", "", eventText(run, i)+" "+e.EmittedAt)
		}
		if err := keyFields(run, e).Validate(); err != nil {
			v.want("an event has no idempotency key", "", err.Error())
		}
	}
	return true
}

// keyFields returns what the idempotency key of an event hashes.
func keyFields(run *runevents.Run, e *runevents.Event) runevents.KeyFields {
	return runevents.KeyFields{
		RunID: run.RunID, StepID: e.StepID, LogicalAttemptID: e.LogicalAttemptID, EventType: e.EventType,
		PlanID: run.PlanID, PlanVersion: run.PlanVersion,
	}
}

// isUUIDv4 says whether s is a UUID v4 in its lower-case form.
func isUUIDv4(s string) bool {
	id, err := uuid.Parse(s)
	return err == nil && id.Version() == 4 && id.Variant() == uuid.RFC4122 && id.String() == s
}

func eventText(run *runevents.Run, i int) string {
	e := &run.Events[i]
	return "runSeq " + text(run.FirstSeq+int64(i)) + ", " + strings.TrimSpace(string(e.EventType)+" "+e.StepID)
}

// checkEngineRun checks the run of a record of the engine: that it is a valid run, all of it, and
// tells what the result says.
func checkEngineRun(v *fsckVerdict, rec *record, result *handoff.Result) {
	if !checkEvents(v, rec) {
		return
	}
	run := rec.Run
	if !isUUIDv4(run.RunID) {
		v.want("the id of the run is not a UUID v4", "", run.RunID)
	}
	v.want("the run is of another plan than the result", result.ProposalID, run.PlanID)
	v.want("the run does not begin with its first event", "runSeq 1", "runSeq "+text(run.FirstSeq))
	story := fsckStory{verdict: v, run: run, status: runevents.RunPending, steps: map[string]runevents.StepStatus{}}
	for i := range run.Events {
		story.move(i)
		story.tells(i, rec, result)
	}
	v.want("the run does not end as its result says", storyOf(result), story.end())
}

// fsckStory is the state that the events of a run lead to.
type fsckStory struct {
	verdict *fsckVerdict
	run     *runevents.Run
	status  runevents.RunStatus
	steps   map[string]runevents.StepStatus
}

// move makes the transition of event i.
func (s *fsckStory) move(i int) {
	e := &s.run.Events[i]
	if !e.EventType.OfStep() {
		s.moveRun(i)
		return
	}
	now, ok := s.steps[e.StepID]
	if !ok {
		now = runevents.StepPending
	}
	next, valid := runevents.NextStepStatus(now, e.EventType)
	if !valid || s.status != runevents.RunRunning {
		s.verdict.want("an event is not a valid transition", string(now), eventText(s.run, i))
		return
	}
	s.steps[e.StepID] = next
}

func (s *fsckStory) moveRun(i int) {
	event := s.run.Events[i].EventType
	next, valid := runevents.NextRunStatus(s.status, event)
	if target, _ := runevents.NextRunStatus("", event); target == "" {
		return // of an unknown type
	}
	if !valid {
		s.verdict.want("an event is not a valid transition", string(s.status), eventText(s.run, i))
		return
	}
	s.status = next
}

// end renders where the run and the engine's steps are.
func (s *fsckStory) end() string {
	end := "run " + string(s.status)
	for _, step := range [...]string{stepDuplicate, stepStale, stepPrecondition, stepApply} {
		end += ", " + step + " " + string(s.steps[step])
	}
	return end
}

// storyOf renders where the run of a result has to end.
func storyOf(r *handoff.Result) string {
	checked := func(evaluated bool) runevents.StepStatus {
		if evaluated {
			return runevents.StepSucceeded
		}
		return runevents.StepWasSkipped
	}
	s := fsckStory{status: runevents.RunSucceeded, steps: map[string]runevents.StepStatus{
		stepDuplicate:    checked(r.Evaluation.DuplicateCheck.Evaluated),
		stepStale:        checked(r.Evaluation.StaleCheck.Evaluated),
		stepPrecondition: checked(r.Evaluation.Preconditions.Evaluated),
		stepApply:        checked(r.Accepted),
	}}
	if r.Status == handoff.Failed {
		s.status, s.steps[stepApply] = runevents.RunHasFailed, runevents.StepHasFailed
	}
	return s.end()
}

// tells checks the payload of event i against the record and its result.
func (s *fsckStory) tells(i int, rec *record, r *handoff.Result) {
	e := &s.run.Events[i]
	switch e.EventType {
	case runevents.RunStarted:
		s.says(i, rec.TownID, "townId")
		s.says(i, r.HandoffID, "handoffId")
		s.says(i, r.Command, "command")
	case runevents.RunCompleted, runevents.RunFailed:
		s.says(i, string(r.Status), "status")
		s.says(i, string(r.ReasonCode), "reasonCode")
		s.says(i, r.ResultID, "resultId")
	case runevents.StepSkipped:
		s.says(i, string(r.ReasonCode), "reason")
	case runevents.StepFailed:
		s.says(i, string(r.ReasonCode), "error", "code")
	case runevents.StepCompleted:
		s.saysBlock(i, r)
	}
}

// says checks a string in a payload, a member or a member of a member.
func (s *fsckStory) says(i int, want string, path ...string) {
	value, got := s.run.Events[i].Payload, ""
	for _, name := range path {
		var members map[string]jsontext.Value
		if json.Unmarshal(value, &members) != nil {
			break
		}
		value = members[name]
	}
	if json.Unmarshal(value, &got) != nil {
		got = string(value)
	}
	s.differs(i, want, got)
}

func (s *fsckStory) differs(i int, want, got string) {
	s.verdict.want("an event does not say what the record does: "+eventText(s.run, i), want, got)
}

// saysBlock checks that what a completed step says is its block of the result.
func (s *fsckStory) saysBlock(i int, r *handoff.Result) {
	var block any
	switch s.run.Events[i].StepID {
	case stepDuplicate:
		block = r.Evaluation.DuplicateCheck
	case stepStale:
		block = r.Evaluation.StaleCheck
	case stepPrecondition:
		block = r.Evaluation.Preconditions
	case stepApply:
		block = r.WorldState
	default:
		return
	}
	want, err := json.Marshal(block, json.Deterministic(true))
	got := s.run.Events[i].Payload
	if err == nil && (bytes.Equal(want, got) || canonicalText(want) == canonicalText(got)) {
		return
	}
	s.differs(i, string(want), string(got))
}

// canonicalText returns the canonical form of JSON, and the text as it is where it is none.
func canonicalText(data []byte) string {
	tree, err := schemas.Decode(data, schemas.Limits{Bytes: len(data) + 1})
	if err != nil {
		return string(data)
	}
	return string(handoff.AppendCanonical(nil, tree))
}

func terminal(event runevents.EventType) bool {
	switch event {
	case runevents.RunCompleted, runevents.RunFailed, runevents.RunCancelled:
		return true
	}
	return false
}
