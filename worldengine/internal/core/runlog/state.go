package runlog

import (
	"cmp"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"
	"unicode"

	"worldengine/runevents"
	"worldengine/schemas"
)

// TransitionError refuses an append if the run or a step cannot make the transition of one of the
// new events (RunEvents v2.0.1, section 5.3, layer 2). Nothing was stored. The error depends on the
// write alone, not on the state that refused it: the same append gets the same error as long as the
// append is invalid. Its code is INVALID_TRANSITION.
type TransitionError struct {
	Index            int // of the write in the append
	RunID            string
	EventType        runevents.EventType
	StepID           string // "" for the run
	LogicalAttemptID int64
	AttemptedState   string
}

func (e *TransitionError) Error() string {
	entity := "run " + e.RunID
	if e.StepID != "" {
		entity = fmt.Sprintf("step %q, attempt %d, of %s", e.StepID, e.LogicalAttemptID, entity)
	}
	return fmt.Sprintf("runlog: %s is not valid for %s: it cannot go to %s now",
		e.EventType, entity, e.AttemptedState)
}

// ErrRunEnding refuses an append because the engine is about to end its run. Nothing was stored.
// Append again: within moments the run has ended, or goes on.
var ErrRunEnding = errors.New("runlog: the engine is ending the run: append again in a moment")

// ErrRunEnded refuses new events of a run that the engine has ended. Nothing was stored; do not
// retry. Its code is RUN_ENDED.
var ErrRunEnded = errors.New("runlog: the engine has ended the run, which takes no more " +
	"events: append a command's events before its answer, or begin a run of your own")

// OwnedError refuses an append because another producer emitted an event that only the engine may
// emit. Nothing was stored; do not retry. Its code is RUN_OWNED.
type OwnedError struct {
	Index     int // of the write in the append
	RunID     string
	EventType runevents.EventType
	StepID    string // "" for the run
	// Member is the member of the write that belongs to the engine: eventType, planId or, in a run
	// of the engine, stepId.
	Member string
}

func (e *OwnedError) Error() string {
	switch e.Member {
	case "eventType":
		return fmt.Sprintf("runlog: the engine alone emits %s: append other events", e.EventType)
	case "planId":
		return fmt.Sprintf("runlog: the plan of run %s is the engine's: begin a run with a plan "+
			"of your own", e.RunID)
	}
	entity := "the run itself"
	if e.StepID != "" {
		entity = fmt.Sprintf("its step %q", e.StepID)
	}
	return fmt.Sprintf("runlog: the engine alone emits %s of %s in its run %s: "+
		"append events of steps of your own, or to a run of your own", e.EventType, entity, e.RunID)
}

// AppendPolicy limits the events that an append authority accepts from other producers.
type AppendPolicy struct {
	// TenantID is the tenant whose new events are accepted; "" accepts every tenant.
	TenantID string
	// EngineSteps are the steps of the engine's own runs. In these runs other producers may emit no
	// events of these steps, nor of a step whose name differs from theirs only in case or
	// punctuation.
	EngineSteps []string
	// EnginePlan reports whether only the engine may start runs of a plan. Nil means that others
	// may start runs of every plan.
	EnginePlan func(planID, planVersion string) bool
	// Transitions says whether to refuse events that a projector would ignore (RunEvents v2.0.1,
	// section 5.3, layer 2).
	Transitions bool
}

// State has the facts about a run from which an append authority decides about writes, and a
// producer about its next event. It is not safe for concurrent use.
type State struct {
	runID   string
	policy  AppendPolicy
	keys    map[string]runevents.Appended // by idempotencyKey
	ids     map[string]struct{}           // the eventIds
	lastSeq int64
	owner   runevents.Identity // of the first record; the zero Identity without records
	// engine: the engine made the run; closing: the engine is about to end it; ended: the engine
	// has ended it.
	engine, closing, ended bool
	// statuses are the statuses that a projector derives from the events. A projector ignored one of the
	// events if inconsistent is set.
	statuses     statuses
	inconsistent bool
}

// NewState returns the state of a run without events.
func NewState(runID string, policy AppendPolicy) *State {
	return &State{
		runID: runID, policy: policy, keys: map[string]runevents.Appended{}, ids: map[string]struct{}{},
		statuses: statuses{run: runevents.RunStatusPending, steps: map[stepAttempt]runevents.StepStatus{}},
	}
}

// Len returns the number of events that the state has.
func (s *State) Len() int { return len(s.keys) }

// Open reports whether the engine made the run and has not ended it.
func (s *State) Open() bool { return s.engine && !s.ended }

// Add applies persisted records of the run; byEngine says whether the engine emitted them. It
// ignores known records. Within a call, records may come in any order; a later call must bring
// later records. It returns the alerts of a projector about the records. After ErrOtherRun or
// ErrNoRunSeq the state is unchanged.
func (s *State) Add(byEngine bool, records ...runevents.Record) (alerts []runevents.Alert, err error) {
	records, err = runevents.Ordered(s.runID, records)
	if err != nil {
		return nil, err
	}
	fresh := make([]runevents.Record, 0, len(records))
	for i := range records {
		r := &records[i]
		if byEngine {
			s.engine = true
			s.ended = s.ended || r.EventType.EndsRun()
		}
		if _, known := s.keys[r.IdempotencyKey]; known {
			continue
		}
		if s.owner == (runevents.Identity{}) {
			s.owner = identity(&r.Write)
		}
		s.keys[r.IdempotencyKey] = runevents.Appended{
			EventID: r.EventID, RunSeq: r.RunSeq, PersistedAt: r.PersistedAt, Idempotent: true,
		}
		s.ids[r.EventID] = struct{}{}
		s.lastSeq = max(s.lastSeq, r.RunSeq)
		fresh = append(fresh, *r)
	}
	for i := range fresh {
		v := s.statuses.apply(&fresh[i].Write)
		s.inconsistent = s.inconsistent || !v.Valid
		alerts = append(alerts, v.Alerts(&fresh[i])...)
	}
	return alerts, nil
}

// Find returns the place of the event with an idempotency key, and whether the run has it.
func (s *State) Find(idempotencyKey string) (runevents.Appended, bool) {
	found, ok := s.keys[idempotencyKey]
	return found, ok
}

// Check returns *runevents.InvalidTransitionError if a projector would ignore the new event w as the next one
// of the run (RunEvents v2.0.1, section 5.3, layer 1). The producer must then emit no more events of
// that step attempt or, if w has no stepId, of the run.
func (s *State) Check(w *runevents.Write) error {
	v := s.statuses.judge(w)
	if v.Valid {
		return nil
	}
	err := &runevents.InvalidTransitionError{
		StepID: w.StepID, Expected: validIn(w.EventType, w.StepID), Actual: v.Prior,
		Attempted: w.EventType,
	}
	if w.StepID != "" && s.statuses.run.Terminal() {
		err.StepID, err.Expected = "", string(runevents.RunStatusRunning)+" or "+string(runevents.RunStatusPaused)
	}
	return err
}

// SetClosing sets whether the engine is about to end the run. While it is, and the run is open,
// Plan refuses new events.
func (s *State) SetClosing(closing bool) { s.closing = closing }

// Plan is the decision about an append: the events to store, and the answers once they are stored.
type Plan struct {
	// Run has the new events; none if all writes are duplicates.
	Run Run
	// Inconsistent reports whether a projector will ignore one of the new events, and has ignored none
	// of the run's before: the run becomes INCONSISTENT.
	Inconsistent bool
	appended     []runevents.Appended
}

// Results returns the answers in the order of the writes. persistedAt is the time at which the new
// events were persisted.
func (p *Plan) Results(persistedAt time.Time) []runevents.Appended {
	results := slices.Clone(p.appended)
	for i := range results {
		if results[i].PersistedAt == "" {
			results[i].PersistedAt = runevents.Timestamp(persistedAt)
		}
	}
	return results
}

// Plan decides about writes that CheckAppend has accepted, without changing the state. A write is a
// duplicate if the run, or an earlier write of the append, has its idempotencyKey. Its answer is
// then the first event's, whatever else the write says. All other writes get the next places of the
// run.
//
// A logicalAttemptId above 1 is accepted even without the attempt before it. Producers count
// attempts up from 1 (RunEvents v2.0.1, section 2.4). An authority that required the earlier
// attempt could not keep its answer: another writer may append that attempt later, or the attempt
// may have expired.
//
// The error refuses the whole append: *OwnedError, ErrRunEnded, *TransitionError, ErrRunEnding, or
// a *schemas.ValidationError with the paths of a run-append-request.v1. The ValidationError is
// about a new event that
//
//   - has the eventId of another event of the run,
//   - has another tenant, project or environment than the run, or
//   - has another tenant than the policy.
func (s *State) Plan(writes []runevents.Write) (Plan, error) {
	plan := Plan{
		Run:      Run{Identity: identity(&writes[0]), FirstSeq: s.lastSeq + 1},
		appended: make([]runevents.Appended, 0, len(writes)),
	}
	firsts := map[string]int{} // the first write of each new key
	later := s.statuses        // after the new events
	if len(writes) > 1 {
		later.steps = maps.Clone(later.steps)
	}
	refused := schemas.Members{Schema: schemas.RunAppendRequest}
	for i := range writes {
		w := &writes[i]
		if known, ok := s.keys[w.IdempotencyKey]; ok {
			plan.appended = append(plan.appended, known)
			continue
		}
		if first, ok := firsts[w.IdempotencyKey]; ok {
			again := plan.appended[first]
			again.Idempotent = true
			plan.appended = append(plan.appended, again)
			continue
		}
		if member := s.owned(w); member != "" {
			return Plan{}, &OwnedError{Index: i, RunID: w.RunID, EventType: w.EventType,
				StepID: w.StepID, Member: member}
		}
		if s.engine && s.ended {
			return Plan{}, ErrRunEnded
		}
		s.check(&refused, schemas.Pointer("events", i), w, plan.Run.Events)
		seq := plan.Run.FirstSeq + int64(len(plan.Run.Events))
		v := later.judge(w)
		if !v.Valid && s.policy.Transitions {
			return Plan{}, &TransitionError{Index: i, RunID: w.RunID, EventType: w.EventType, StepID: w.StepID,
				LogicalAttemptID: w.LogicalAttemptID, AttemptedState: v.Next}
		}
		plan.Inconsistent = plan.Inconsistent || !v.Valid && !s.inconsistent
		if len(writes) > 1 {
			later.move(w, v)
		}
		event, err := newEvent(w)
		if err != nil {
			return Plan{}, err
		}
		firsts[w.IdempotencyKey] = i
		plan.Run.Events = append(plan.Run.Events, event)
		plan.appended = append(plan.appended, runevents.Appended{EventID: w.EventID, RunSeq: seq})
	}
	if s.Open() && s.closing && len(plan.Run.Events) > 0 {
		return Plan{}, ErrRunEnding
	}
	return plan, refused.Err()
}

// owned returns the member by which a new event belongs to the engine, or "".
func (s *State) owned(w *runevents.Write) string {
	plans := s.policy.EnginePlan != nil && s.policy.EnginePlan(w.PlanID, w.PlanVersion)
	ofRun := s.engine && w.PlanID == s.owner.PlanID && w.PlanVersion == s.owner.PlanVersion
	switch {
	case w.EventType.Spec().EngineOnly:
		return "eventType"
	case s.engine && (w.StepID == "" || slices.ContainsFunc(s.policy.EngineSteps,
		func(step string) bool { return fold(step) == fold(w.StepID) })):
		return "stepId"
	case plans && !ofRun:
		return "planId"
	}
	return ""
}

// check adds a violation for each way in which a new event does not fit its run. at is the path of
// the event; before has the new events that precede it.
func (s *State) check(m *schemas.Members, at string, w *runevents.Write, before []Event) {
	_, known := s.ids[w.EventID]
	if known || slices.ContainsFunc(before, func(e Event) bool { return e.EventID == w.EventID }) {
		m.Add(at+"/eventId", "must be new, but another event of the run has it")
	}
	if tenant := s.policy.TenantID; tenant != "" && w.TenantID != tenant {
		m.Add(at+"/tenantId", "must be %q, the tenant of this server", tenant)
	}
	if owner := s.owner; owner != (runevents.Identity{}) {
		owner.PlanID, owner.PlanVersion = w.PlanID, w.PlanVersion // a run may go on with another plan
		compare(m, at, owner, identity(w))
	}
}

// statuses are the statuses of a run and of its step attempts. A step attempt that is not in steps
// is PENDING.
type statuses struct {
	run   runevents.RunStatus
	steps map[stepAttempt]runevents.StepStatus
}

// judge returns the verdict on e as the run's next event.
func (s *statuses) judge(e *runevents.Write) runevents.Verdict {
	step := s.steps[stepAttempt{e.StepID, e.LogicalAttemptID}]
	return runevents.Judge(s.run, cmp.Or(step, runevents.StepStatusPending), e.EventType, e.StepID)
}

// apply moves the run or the step attempt that e is about, if e is valid.
func (s *statuses) apply(e *runevents.Write) runevents.Verdict {
	v := s.judge(e)
	s.move(e, v)
	return v
}

func (s *statuses) move(e *runevents.Write, v runevents.Verdict) {
	switch {
	case !v.Valid:
	case e.EventType.IsStepLevel():
		s.steps[stepAttempt{e.StepID, e.LogicalAttemptID}] = runevents.StepStatus(v.Next)
	default:
		s.run = runevents.RunStatus(v.Next)
	}
}

// fold returns the letters and digits of a name, in lower case.
func fold(name string) string {
	return strings.ToLower(strings.Map(func(r rune) rune {
		if unicode.IsLetter(r) || unicode.IsDigit(r) {
			return r
		}
		return -1
	}, name))
}
