package fsck

import (
	"bytes"
	"errors"
	"math"
	"slices"
	"time"

	"github.com/go-json-experiment/json"

	"worldengine/dedupe"
	"worldengine/handoff"
	"worldengine/runevents"
	"worldengine/schemas"
	"worldengine/worldengine/apply"
	"worldengine/worldengine/approval"
	"worldengine/worldengine/commitlog"
	"worldengine/worldengine/lifecycle"
	"worldengine/worldengine/machine"
	"worldengine/worldengine/town"
)

// differs is the finding about a record that the machine does not make.
const differs = "the record is not the one that its input makes of the town"

// step steps the town before a record again, by the record's input, and compares the two records
// byte for byte.
func (v *Verdict) step(rec *commitlog.Record, before machine.Town) {
	differ := v.follows
	if v.before == 0 { // there is none
		differ = v.want
	}
	in, settings, err := inputOf(rec, before)
	if err != nil {
		differ("the record does not have the input of its step", "", err.Error())
		return
	}
	out, err := machine.Step(before, in, settings)
	if err != nil {
		differ("the town could not take the input of the record", "", err.Error())
		return
	}
	if out.Record == nil {
		differ(differs, "none", string(rec.Kind))
		return
	}
	if rec.Kind.OfTown() && rec.TownID != "" {
		out.Record.Hold(&out.After)
	}
	out.Record.SchemaVersion = machine.RecordVersion
	made, err := out.Record.MarshalJSON()
	if err != nil {
		differ(differs, "", err.Error())
		return
	}
	want, got := excerpts(made, v.message.Data())
	differ(differs, want, got)
}

// inputOf returns the input, and the settings, by which a record was made of a town.
func inputOf(rec *commitlog.Record, before machine.Town) (*machine.Input, *machine.Settings, error) {
	rules := town.DefaultRules()
	if rec.Rules != nil {
		rules = *rec.Rules
	}
	settings := &machine.Settings{Rules: &rules, Apply: apply.Local}
	if rec.WorldPolicy != nil {
		settings.Policy = *rec.WorldPolicy
	}
	in := &machine.Input{TownID: rec.TownID, At: endOf(rec)}
	if rec.Run != nil {
		in.Drawn = rec.Run.Drawn()
	}
	var err error
	switch kind := rec.Kind; {
	case kind == machine.KindPut:
		err = putOf(in, rec, before)
	case kind == machine.KindRemove:
		in.Event = &machine.Remove{ActorID: rec.ActorID}
	case kind == machine.KindControl, kind == machine.KindDecided:
		err = signalOf(in, settings, rec)
	case kind == machine.KindPending && rec.Run == nil:
		err = attemptOf(in, settings, rec.Pending, before.Pending)
	case kind == machine.KindCancelled:
		err = cancellationOf(in, rec, before.Pending)
	case kind == machine.KindHandoff && isConclusion(rec.Run):
		err = outcomeOf(in, settings, rec, before.Pending)
	default:
		err = deliveryOf(in, settings, rec)
	}
	return in, settings, err
}

// errNotPending: a record about the command that is being applied to a town follows one without it.
var errNotPending = errors.New("no command is being applied to the town")

// attemptOf sets an input to the outcome of an attempt before another one, or to a request that may
// have arrived.
func attemptOf(
	in *machine.Input, settings *machine.Settings, p, before *apply.Pending,
) error {
	switch {
	case p == nil || before == nil:
		return errNotPending
	case p.Attempt == before.Attempt:
		in.Event = &machine.Arrival{MayHaveArrived: p.Reached, Rests: p.Rested}
		return nil
	case p.Last == nil:
		return errors.New("the record does not say how the attempt before ended")
	}
	in.At, in.Drawn, in.Tail = p.NotBefore, p.EventIDs, tailOf(new(runevents.Run), before)
	settings.Plugin = apply.Policy{Attempts: math.MaxInt64, Deadline: p.Deadline.Sub(p.NotBefore)}
	in.Event = &machine.Outcome{Result: apply.Result{
		Attempt: before.Attempt, At: p.Last.At, Failed: new(*p.Last), Reached: p.Reached,
	}}
	return nil
}

// outcomeOf sets an input to the outcome that ends a run.
func outcomeOf(
	in *machine.Input, settings *machine.Settings, rec *commitlog.Record, p *apply.Pending,
) error {
	if p == nil {
		return errNotPending
	}
	r, err := handoff.ParseResult(rec.Result, schemas.Limits{Bytes: len(rec.Result) + 1})
	if err != nil {
		return err
	}
	in.Tail = tailOf(rec.Run, p)
	settings.Plugin.Attempts = p.Attempt
	v := apply.Result{Attempt: p.Attempt, Applied: r.Executed}
	var said struct {
		apply.Artifacts `json:",inline"`
		Error           struct {
			Code      string `json:"code"`
			Message   string `json:"message"`
			Retryable bool   `json:"retryable"`
		} `json:"error"`
	}
	for i := range rec.Run.Events {
		e := &rec.Run.Events[i]
		if e.StepID == lifecycle.StepApply && e.EventType != runevents.StepStarted &&
			e.LogicalAttemptID == p.Attempt {
			v.At = emittedAt(e)
			if err := json.Unmarshal(e.Payload, &said); err != nil {
				return err
			}
		}
	}
	switch {
	case !v.Applied:
		v.Failed = &apply.Failure{Reason: r.ReasonCode, Message: said.Error.Message,
			Retryable: said.Error.Retryable}
		if said.Error.Code != string(r.ReasonCode) {
			v.Failed.Code = said.Error.Code
		}
	case !bytes.Equal(rec.Snapshot, p.Expected):
		v.Snapshot = rec.Snapshot
		fallthrough
	default:
		v.Artifacts = said.Artifacts
		if rec.Addition != nil {
			v.Embodiment = rec.Addition.Embodiment
		}
	}
	in.Event = &machine.Outcome{Result: v}
	return nil
}

// cancellationOf sets an input to a record's cancellation.
func cancellationOf(in *machine.Input, rec *commitlog.Record, p *apply.Pending) error {
	if p == nil {
		return errNotPending
	}
	if rec.Run == nil || len(rec.Run.Events) == 0 {
		return errors.New("the record has no run")
	}
	var why lifecycle.Cancellation
	last := &rec.Run.Events[len(rec.Run.Events)-1]
	if err := json.Unmarshal(last.Payload, &why); err != nil {
		return err
	}
	in.Tail = tailOf(rec.Run, p)
	in.Event = &machine.Cancel{Signal: &machine.Signal{
		Kind: lifecycle.SignalCancel, Run: runevents.Identity{RunID: why.SignalID},
		RunID: rec.Run.RunID, Force: why.Code == lifecycle.CancelledByForce, Reason: why.Reason,
	}}
	return nil
}

// tailOf returns the end of a pending command's run before a record with the next events: the
// attempts' events that the record lacks are on the run's own subject.
func tailOf(next *runevents.Run, p *apply.Pending) *machine.RunTail {
	stored := slices.DeleteFunc(lifecycle.OfAttempts(p.Attempt), func(e runevents.Event) bool {
		return slices.ContainsFunc(next.Events, func(n runevents.Event) bool {
			return n.EventType == e.EventType && n.LogicalAttemptID == e.LogicalAttemptID
		})
	})
	tail := machine.NewTail(&runevents.Run{Identity: p.Run, Events: stored}, p.Emitted)
	tail.Next, tail.Closed = next.FirstSeq, true
	if len(next.Events) > 0 && next.Events[0].EventType == runevents.RunResumed {
		tail.Pauses, tail.PausedAt = next.Events[0].LogicalAttemptID, p.Emitted+1
	}
	return tail
}

// isConclusion reports whether a run goes on behind its handoff's first commit: its first event is
// of no type that begins a run, or continues it after a pause. A run that a cancellation had closed
// in a pause is first resumed, and then goes on with its command.
func isConclusion(run *runevents.Run) bool {
	if run == nil || len(run.Events) == 0 {
		return run != nil
	}
	switch run.Events[0].EventType {
	case runevents.RunQueued, runevents.RunApproved, runevents.RunStarted:
		return false
	case runevents.RunResumed:
		return len(run.Events) > 1 && run.Events[1].StepID == lifecycle.StepApply
	}
	return true
}

// putOf sets an input to a record's put.
func putOf(in *machine.Input, rec *commitlog.Record, before machine.Town) error {
	state, err := town.ParseStored(rec.Snapshot)
	in.Event = &machine.Put{
		State: state, Expected: before.State.Hash, ActorID: rec.ActorID,
		Attributes: machine.Attributes{Apply: rec.Apply, Approval: rec.Policy},
	}
	return err
}

// signalOf sets an input to a record's signal.
func signalOf(in *machine.Input, settings *machine.Settings, rec *commitlog.Record) error {
	said, err := lifecycle.SignalIn(rec.Run)
	if err != nil {
		return err
	}
	signal := &machine.Signal{
		Kind: said.Signal, Run: rec.Run.Identity, TownID: said.TownID, RunID: said.RunID,
		HandoffID: said.HandoffID, HandoffHash: said.HandoffHash, ActorID: said.ActorID,
		Reason: said.Reason,
	}
	in.Event = signal
	if rec.Paused != nil {
		signal.DrainTimeout = time.Duration(rec.Paused.DrainTimeoutMs) * time.Millisecond
	}
	if a := approval.List(rec.Approvals).Decided(rec.Run.RunID); a != nil {
		settings.ApprovalTimeout = a.Expires.Sub(a.Decision.At)
	}
	return nil
}

// deliveryOf sets an input to the delivery of a record's handoff.
func deliveryOf(in *machine.Input, settings *machine.Settings, rec *commitlog.Record) error {
	if rec.Run == nil {
		return errors.New("the record has no run")
	}
	encoded, retryOf := rec.Handoff, rec.RetryOf
	if p := rec.Pending; p != nil {
		encoded, retryOf = p.Handoff, p.RetryOf
		settings.Apply, settings.Plugin.Deadline = p.Via, p.Deadline.Sub(p.Accepted)
		in.Drawn = append(in.Drawn, p.EventIDs...)
	}
	if n := len(rec.Approvals); rec.Kind == machine.KindAsked && n > 0 {
		settings.ApprovalTimeout = rec.Approvals[n-1].Expires.Sub(rec.Approvals[n-1].At)
	}
	h, err := handoff.Parse(encoded, schemas.Limits{Bytes: len(encoded) + 1})
	if err != nil {
		return err
	}
	e := &machine.Handoff{Handoff: h, Run: rec.Run.Identity, Next: rec.Run.FirstSeq,
		Begin: beginOf(rec.Run), RetryOf: retryOf}
	in.Event = e
	if rec.Kind == machine.KindRefused {
		e.Prior, err = priorOf(rec, settings, h)
	}
	return err
}

// beginOf returns how the events of a run begin.
func beginOf(run *runevents.Run) (begin lifecycle.Begin) {
	for i := range run.Events {
		e := &run.Events[i]
		switch e.EventType {
		case runevents.RunQueued:
			begin.Start = lifecycle.StartQueued
			begin.Waited = endOf(&commitlog.Record{Run: run}).Sub(emittedAt(e))
		case runevents.RunResumed:
			begin.Start = lifecycle.StartResumed
		case runevents.RunStarted:
			if run.FirstSeq > 1 {
				begin.Start = lifecycle.StartWaited
			}
		case runevents.SignalAccepted:
			if said, err := lifecycle.SignalIn(run); err == nil {
				begin.Retry = &lifecycle.Retry{RunID: said.RunID, ActorID: said.ActorID,
					Reason: said.Reason}
			}
		}
	}
	return begin
}

// priorOf returns the receipt of which a refused handoff is a duplicate, by its result; nil if it
// is none.
func priorOf(
	rec *commitlog.Record, settings *machine.Settings, h *handoff.Handoff,
) (*dedupe.Receipt, error) {
	r, err := handoff.ParseResult(rec.Result, schemas.Limits{Bytes: len(rec.Result) + 1})
	if err != nil {
		return nil, err
	}
	switch r.ReasonCode {
	case handoff.ReasonApprovalRequired, handoff.ReasonApprovalDenied,
		handoff.ReasonApprovalTooLarge, handoff.ReasonApprovalsFull:
		settings.Policy.Types = []handoff.ProposalType{h.Proposal.Type} // its record has none
	}
	if r.Evaluation.DuplicateCheck.DuplicateOf == nil {
		return nil, nil
	}
	prior := &dedupe.Receipt{Key: h.IdempotencyKey,
		ResultID: *r.Evaluation.DuplicateCheck.DuplicateOf}
	if r.ReasonCode == handoff.ReasonDuplicate {
		prior.HandoffID = h.HandoffID
	}
	return prior, nil
}

// emittedAt returns an event's emittedAt, or the zero time.
func emittedAt(e *runevents.Event) time.Time {
	at, _ := time.Parse(time.RFC3339Nano, e.EmittedAt)
	return at
}

// endOf returns the emittedAt of a record's last event, or the zero time.
func endOf(rec *commitlog.Record) time.Time {
	if rec.Run == nil || len(rec.Run.Events) == 0 {
		return time.Time{}
	}
	return emittedAt(&rec.Run.Events[len(rec.Run.Events)-1])
}
