package fsck

import (
	"bytes"
	"cmp"
	"fmt"
	"math"
	"slices"
	"time"

	"github.com/go-json-experiment/json"

	"worldengine/dedupe"
	"worldengine/handoff"
	"worldengine/runevents"
	"worldengine/schemas"
	"worldengine/worldengine/internal/core/apply"
	"worldengine/worldengine/internal/core/approval"
	"worldengine/worldengine/internal/core/machine"
	"worldengine/worldengine/internal/core/runlog"
	"worldengine/worldengine/internal/core/town"
	"worldengine/worldengine/messages"
	"worldengine/worldengine/wire"
)

// replay is the step of the machine that should have made a record.
type replay struct {
	*message
	town     machine.Town // before the step
	in       machine.Input
	settings machine.Settings
}

// replay returns the step that should have made the message's record, still without an event.
func (v *message) replay(townID string, before machine.Town) *replay {
	r := &replay{message: v, town: before,
		in: machine.Input{TownID: townID, At: endOf(v.rec.Run)}}
	if v.rec.Run != nil {
		r.in.Drawn = runlog.EventIDs(v.rec.Run)
	}
	rules := town.DefaultRules()
	if v.rec.Rules != nil {
		rules = *v.rec.Rules
	}
	r.settings = machine.Settings{Rules: &rules, Binding: apply.Local}
	if v.rec.WorldPolicy != nil {
		r.settings.ApprovalPolicy = *v.rec.WorldPolicy
	}
	return r
}

// repeatStep repeats the step that made a record, with the town before it and its input. It compares both
// records byte for byte. run is the record's run; nil if it has none.
func (v *message) repeatStep(before machine.Town, run *runState) {
	r := v.replay(v.rec.TownID, before)
	event, err := r.event()
	if err != nil {
		v.expectFollows("the record does not have the input of its step", "", err.Error())
		return
	}
	if h, judged := event.(*machine.Judge); judged && run != nil {
		v.repeatWaits(run, h)
	}
	r.try(event)
}

// foreignEventID stands for the id of a cancellation's last event. That event is in another record than this one,
// so its id is not known here, and no byte depends on it.
const foreignEventID = "00000000-0000-4000-8000-000000000000"

// repeatRunStep is repeatStep for a record on a run's own subject, which one of the given events made, perhaps
// before another record. tail is the run's end before the record.
func (v *message) repeatRunStep(
	townID string, before machine.Town, tail *machine.RunTail, events ...machine.Event,
) {
	r := v.replay(townID, before)
	r.in.Tail, r.settings.Retry.Attempts = tail, 1
	if before.Pending != nil {
		r.in.IDs = []string{foreignEventID}
	}
	r.try(events...)
}

// try makes the step with each of events, until one makes the message's record.
func (r *replay) try(events ...machine.Event) {
	var closest []byte
	var failed error
	for _, r.in.Event = range events {
		made, err := r.makeRecord()
		if r.reproduced = err == nil && bytes.Equal(made, r.body); r.reproduced {
			return
		}
		if closest == nil {
			closest, failed = made, err
		}
	}
	r.compare(closest, failed)
}

// compare reports a difference between the message's record and made, the record that its input
// makes. If the input makes none, made is nil, and err has the reason.
func (v *message) compare(made []byte, err error) {
	if made == nil && err != nil {
		v.expectFollows("the town could not take the input of the record", "", err.Error())
		return
	}
	want, got := excerpts(made, v.body)
	v.expectFollows("the record is not the one that its input makes of the town", want, got)
}

// makeRecord returns the bytes of the record that the step makes; nil if it makes none.
func (r *replay) makeRecord() ([]byte, error) {
	out, err := machine.Step(r.town, &r.in, &r.settings)
	rec := cmp.Or(out.RunRecordBefore, out.Record)
	if err != nil || rec == nil {
		return nil, err
	}
	if rec.Subject() == machine.TownSubject {
		rec.SetState(&out.NextTown)
	}
	return rec.MarshalJSON()
}

// repeatWaits repeats the steps of the records of a run that waited, now that its handoff is known.
func (v *message) repeatWaits(run *runState, h *machine.Judge) {
	tail := machine.NewTail(nil, 0)
	for _, w := range run.waitRecords {
		if !w.rec.Kind.Spec().Foreign && len(w.rec.Run.Events) > 0 && !run.incomplete {
			start, _ := recordedStart(w.rec.Run)
			start.Retry = h.Start.Retry
			wait := machine.Wait{Handoff: h.Handoff, Run: h.Run, Start: start,
				By: pauseOf(w.rec.Run), Closing: w.rec.Closing}
			w.tentative = nil // earlier ones are settled
			w.repeatRunStep(v.rec.TownID, machine.Town{}, tail, &wait)
			v.findings = append(v.findings, w.tentative...)
		}
		tail.Add(w.rec, w.Sequence)
	}
	run.waitRecords = nil
}

// pauseOf returns the pause that the events of a run name; nil if they name none.
func pauseOf(run *runlog.Run) *messages.PausedBy {
	for i := range run.Events {
		if e := &run.Events[i]; e.EventType == runevents.RunPaused {
			by := new(messages.PausedBy)
			_ = json.Unmarshal(e.Payload, by) // the step finds a difference
			return by
		}
	}
	return nil
}

// commandEvents returns the machine's events that can make a record in a pending command's run. If
// an event ends the run, its first record closes the run.
func commandEvents(rec *machine.Record, p *apply.Pending) []machine.Event {
	return []machine.Event{
		&machine.RecordAttempt{}, &machine.RecordAttempt{Started: true},
		&machine.PauseRun{By: pauseOf(rec.Run)},
		&machine.EndAttempt{AttemptResult: apply.AttemptResult{Attempt: p.Attempt, Applied: true}},
		&machine.Cancel{Signal: &machine.Signal{RunID: p.Run.RunID, Force: p.RetryOf == nil}},
	}
}

// cancellationOf reads from a run's last event why the run was cancelled.
func cancellationOf(run *runlog.Run) (cancelled machine.Cancellation) {
	if last := lastOf(run); last != nil {
		_ = json.Unmarshal(last.Payload, &cancelled) // the step finds a difference
	}
	return cancelled
}

func lastOf(run *runlog.Run) *runlog.Event {
	if run == nil || len(run.Events) == 0 {
		return nil
	}
	return &run.Events[len(run.Events)-1]
}

// event reads the event, and the rest of the input and the settings, out of the record. If the
// record lacks a part, the step makes another record or fails.
func (r *replay) event() (machine.Event, error) {
	rec, p := r.rec, r.town.Pending
	attempt := rec.Kind == machine.KindPending && rec.Run == nil
	switch kind := rec.Kind; {
	case kind == machine.KindPut:
		return &machine.Put{
			State: *r.state, Expected: r.town.State.Hash, ActorID: rec.ActorID,
			Attributes: machine.Attributes{Binding: rec.Binding, Approval: rec.Policy},
		}, nil
	case kind == machine.KindRemove:
		return &machine.Remove{ActorID: rec.ActorID}, nil
	case kind.Spec().Signal:
		return r.signal(), nil
	case kind == machine.KindConcluded && p != nil:
		return r.outcome(), nil
	case p == nil && (attempt || kind == machine.KindCancelled):
		return &machine.RecordReach{}, nil // the step fails
	case attempt:
		return r.attempt(), nil
	case kind == machine.KindCancelled:
		return r.cancellation(), nil
	}
	return r.delivery()
}

func (r *replay) signal() machine.Event {
	rec, run := r.rec, r.rec.Run.Identity
	run.PlanID, run.PlanVersion = machine.SignalPlan, machine.SignalVersion
	said, _ := machine.SignalIn(rec.Run)
	signal := &machine.Signal{
		Kind: said.Signal, Run: run, TownID: rec.TownID, RunID: said.RunID,
		HandoffID: said.HandoffID, HandoffHash: said.HandoffHash, ActorID: said.ActorID,
		Reason: said.Reason,
	}
	if rec.Kind == machine.KindSignal {
		return &machine.RecordSignal{Signal: signal, Code: wire.Code(said.Code)}
	}
	if rec.Paused != nil {
		signal.DrainTimeout = time.Duration(rec.Paused.DrainTimeoutMs) * time.Millisecond
	}
	if a := approval.List(rec.Approvals).DecidedBy(rec.Run.RunID); a != nil {
		r.settings.ApprovalTimeout = a.Expires.Sub(a.Decision.At)
	}
	return signal
}

// attempt returns the outcome of the previous attempt, or the news that a request may have arrived.
func (r *replay) attempt() machine.Event {
	p, prior := cmp.Or(r.rec.Pending, new(apply.Pending)), r.town.Pending
	if p.Attempt == prior.Attempt {
		return &machine.RecordReach{MayHaveReached: p.MayHaveReached, StoppedUnreached: p.StoppedUnreached}
	}
	failed := *cmp.Or(p.LastFailure, new(apply.Failure))
	r.in.At, r.in.Drawn, r.in.Tail = p.NotBefore, p.EventIDs, tailOf(new(runlog.Run), prior)
	r.settings.Retry = apply.RetryPolicy{Attempts: math.MaxInt64, Deadline: p.Deadline.Sub(p.NotBefore)}
	return &machine.EndAttempt{AttemptResult: apply.AttemptResult{
		Attempt: prior.Attempt, At: failed.At, Failure: &failed, MayHaveReached: p.MayHaveReached,
	}}
}

// outcome returns the outcome that ends a run.
func (r *replay) outcome() machine.Event {
	rec, p := r.rec, r.town.Pending
	r.in.Tail = tailOf(rec.Run, p)
	r.settings.Retry.Attempts = p.Attempt
	v := apply.AttemptResult{Attempt: p.Attempt, Applied: r.result.Executed}
	var said struct {
		apply.Artifacts `json:",inline"`
		Error           apply.Failure `json:"error"`
	}
	for i := range rec.Run.Events {
		e := &rec.Run.Events[i]
		if e.StepID == machine.StepApply && e.EventType != runevents.StepStarted &&
			e.LogicalAttemptID == p.Attempt {
			v.At = emittedAt(e)
			_ = json.Unmarshal(e.Payload, &said) // the step finds a difference
		}
	}
	if !v.Applied {
		v.Failure = &said.Error
		v.Failure.Reason = r.result.ReasonCode
		return &machine.EndAttempt{AttemptResult: v}
	}
	v.Artifacts = said.Artifacts
	if !bytes.Equal(rec.Snapshot, p.Expected) {
		v.Snapshot = rec.Snapshot
	}
	if rec.Addition != nil {
		v.Embodiment = rec.Addition.Embodiment
	}
	return &machine.EndAttempt{AttemptResult: v}
}

func (r *replay) cancellation() machine.Event {
	cancelled := cancellationOf(r.rec.Run)
	r.in.Tail = tailOf(r.rec.Run, r.town.Pending)
	return &machine.Cancel{Signal: &machine.Signal{
		Kind: machine.SignalCancel, Run: runevents.Identity{RunID: cancelled.SignalID},
		RunID: r.rec.Run.RunID, Force: cancelled.Code == machine.CancelledByForce, Reason: cancelled.Reason,
	}}
}

// tailOf returns the end of a pending command's run before a record with the events next. Events of
// attempts that the record lacks are on the run's own subject.
func tailOf(next *runlog.Run, p *apply.Pending) *machine.RunTail {
	stored := slices.DeleteFunc(machine.RetryEvents(p.Attempt), func(e runlog.Event) bool {
		return slices.ContainsFunc(next.Events, func(n runlog.Event) bool {
			return n.EventType == e.EventType && n.LogicalAttemptID == e.LogicalAttemptID
		})
	})
	tail := machine.NewTail(&runlog.Run{Identity: p.Run, Events: stored}, p.Emitted)
	tail.Next, tail.Closed = next.FirstSeq, true
	if len(next.Events) > 0 && next.Events[0].EventType == runevents.RunResumed {
		tail.Pauses, tail.PausedAt = next.Events[0].LogicalAttemptID, p.Emitted+1
	}
	return tail
}

func retryOf(rec *machine.Record) *apply.RetryOf {
	if rec.Pending != nil && rec.Run != nil && rec.Pending.Run.RunID == rec.Run.RunID {
		return rec.Pending.RetryOf
	}
	return rec.RetryOf
}

func (r *replay) delivery() (machine.Event, error) {
	rec, encoded := r.rec, r.rec.Handoff
	if p := rec.Pending; p != nil {
		encoded = p.Handoff
		r.settings.Binding, r.settings.Retry.Deadline = p.Binding, p.Deadline.Sub(p.Accepted)
		r.in.Drawn = append(r.in.Drawn, p.EventIDs...)
	}
	if n := len(rec.Approvals); rec.Kind == machine.KindAsked && n > 0 {
		r.settings.ApprovalTimeout = rec.Approvals[n-1].Expires.Sub(rec.Approvals[n-1].At)
	}
	h, err := handoff.Parse(encoded, schemas.Limits{Bytes: len(encoded) + 1})
	if err != nil {
		return nil, err
	}
	start, status := recordedStart(rec.Run)
	e := &machine.Judge{Handoff: h, Sent: encoded, Run: rec.Run.Identity, Start: start, RetryOf: retryOf(rec)}
	if first := rec.Run.FirstSeq; first > 1 || status != "" { // the handoff waited, and its run was closed
		r.in.Tail = machine.NewTail(nil, first-1)
		r.in.Tail.Closed, r.in.Tail.Status = true, status
	}
	e.Run.PlanID, e.Run.PlanVersion = h.ProposalID, h.Proposal.SchemaVersion
	if retried := e.RetryOf; retried != nil {
		if retried.LogSeq == 0 || retried.LogSeq >= r.Sequence {
			r.expectEqual("the record of the retried run does not come before",
				fmt.Sprint("a log sequence below ", r.Sequence), fmt.Sprint(retried.LogSeq))
		}
		said, _ := machine.SignalIn(rec.Run)
		e.Start.Retry = &machine.RetryRequest{RunID: retried.RunID, ActorID: said.ActorID, Reason: said.Reason}
	}
	if rec.Kind != machine.KindRefused {
		return e, nil
	}
	switch r.result.ReasonCode {
	case handoff.ReasonApprovalRequired, handoff.ReasonApprovalDenied,
		handoff.ReasonApprovalTooLarge, handoff.ReasonApprovalsFull:
		r.settings.ApprovalPolicy.Types = []handoff.ProposalType{h.Proposal.Type} // the record has none
	}
	if first := r.result.Evaluation.DuplicateCheck.DuplicateOf; first != nil {
		e.Prior = &dedupe.Receipt{Key: h.IdempotencyKey, ResultID: *first}
		if r.result.ReasonCode == handoff.ReasonDuplicate {
			e.Prior.HandoffID = h.HandoffID
		}
	}
	return e, nil
}

// recordedStart returns how a run begins that a record starts or goes on with, and the status of a run that
// goes on.
func recordedStart(run *runlog.Run) (start machine.RunStart, status runevents.RunStatus) {
	for i := range run.Events {
		e := &run.Events[i]
		switch e.EventType {
		case runevents.RunQueued:
			start.Queued, start.Waited = true, endOf(run).Sub(emittedAt(e))
		case runevents.RunResumed:
			status = runevents.RunStatusPaused
		case runevents.RunStarted:
			if run.FirstSeq > 1 {
				status = runevents.RunStatusPending
			}
		}
	}
	return start, status
}

// emittedAt returns an event's emittedAt, or the zero time. endOf returns the emittedAt of a run's
// last event.
func emittedAt(e *runlog.Event) time.Time {
	if e == nil {
		return time.Time{}
	}
	at, _ := time.Parse(time.RFC3339Nano, e.EmittedAt)
	return at
}

func endOf(run *runlog.Run) time.Time { return emittedAt(lastOf(run)) }
