package fsck

import (
	"bytes"
	"errors"
	"fmt"
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
	"worldengine/worldengine/machine"
	"worldengine/worldengine/town"
	"worldengine/worldengine/wire"
)

// differs is the finding about a record that the machine does not make.
const differs = "the record is not the one that its input makes of the town"

// step steps the town before a record again, by the record's input, and compares the two records
// byte for byte. run is the record's run; nil if it has none.
func (v *Verdict) step(rec *commitlog.Record, before machine.Town, run *runState) {
	if rec.Run == nil && !mayLackRun(rec.Kind) {
		return
	}
	in, settings, err := inputOf(rec, before)
	if err != nil {
		v.follows("the record does not have the input of its step", "", err.Error())
		return
	}
	if h, judged := in.Event.(*machine.Handoff); judged && run != nil {
		v.stepWaits(run, h)
	}
	v.compare(before, in, settings, in.Event)
}

// compare steps a town by one event after another until the step makes the record of the message.
func (v *Verdict) compare(
	before machine.Town, in *machine.Input, settings *machine.Settings, events ...machine.Event,
) {
	var closest []byte
	var failed error
	for _, in.Event = range events {
		made, err := makeRecord(before, in, settings)
		if v.stepped = err == nil && bytes.Equal(made, v.message.Data); v.stepped {
			return
		}
		if closest == nil {
			closest, failed = made, err
		}
	}
	if closest == nil && failed != nil {
		v.follows("the town could not take the input of the record", "", failed.Error())
		return
	}
	want, got := excerpts(closest, v.message.Data)
	v.follows(differs, want, got)
}

// makeRecord returns the bytes of the record that an input makes of a town; nil if it makes none.
func makeRecord(t machine.Town, in *machine.Input, settings *machine.Settings) ([]byte, error) {
	out, err := machine.Step(t, in, settings)
	if err != nil || out.Record == nil {
		return nil, err
	}
	if out.Record.Kind.OfTown() && in.TownID != "" {
		out.Record.Hold(&out.After)
	}
	return out.Record.MarshalJSON()
}

// stepRun steps a record on a run's own subject, with its end before the record, by one of events.
func (v *Verdict) stepRun(
	rec *commitlog.Record, before machine.Town, tail *machine.RunTail, events ...machine.Event,
) {
	in := &machine.Input{TownID: rec.TownID, At: endOf(rec), Drawn: rec.Run.Drawn(), Tail: tail}
	settings := &machine.Settings{Plugin: apply.Policy{Attempts: 1}}
	v.compare(before, in, settings, events...)
}

// stepWaits steps the records of a run that waited, now that its handoff is known.
func (v *Verdict) stepWaits(run *runState, h *machine.Handoff) {
	tail := machine.NewTail(nil, 0)
	for _, w := range run.waits {
		if w.rec.Kind == commitlog.KindRun && len(w.rec.Run.Events) > 0 && !run.lost {
			of := &Verdict{message: w.RawStreamMsg, town: w.rec.TownID, stream: v.stream}
			wait := waitOf(w.rec, h)
			of.stepRun(w.rec, machine.Town{}, tail, &wait, &machine.Close{Wait: wait})
			v.Own = append(v.Own, of.Own...)
		}
		tail.Add(w.rec, w.Sequence)
	}
	run.waits = nil
}

// waitOf returns the wait that a record of a run tells of.
func waitOf(rec *commitlog.Record, h *machine.Handoff) machine.Wait {
	begin := beginOf(rec.Run)
	begin.Retry = h.Begin.Retry
	return machine.Wait{Handoff: h.Handoff, Run: rec.Run.Identity, Begin: begin,
		By: pauseOf(rec.Run)}
}

// pauseOf returns the pause that the events of a run name; nil if they name none.
func pauseOf(run *runevents.Run) *commitlog.PausedBy {
	for i := range run.Events {
		if e := &run.Events[i]; e.EventType == runevents.RunPaused {
			by := new(commitlog.PausedBy)
			_ = json.Unmarshal(e.Payload, by) // the step finds a difference
			return by
		}
	}
	return nil
}

// eventsInHand returns the events that can make a record of the run of a pending command. Those
// that end the run close it first, whatever the end is.
func eventsInHand(rec *commitlog.Record, p *apply.Pending) []machine.Event {
	return []machine.Event{
		&machine.Attempt{}, &machine.Attempt{Started: true},
		&machine.Hold{By: pauseOf(rec.Run)},
		&machine.Outcome{Result: apply.Result{Attempt: p.Attempt, Applied: true}},
		&machine.Cancel{Signal: &machine.Signal{RunID: p.Run.RunID, Force: p.RetryOf == nil}},
	}
}

// abandonOf returns the event that cancelled a run that waited.
func abandonOf(rec *commitlog.Record) machine.Event {
	e := &machine.Abandon{Run: rec.Run.Identity}
	_ = json.Unmarshal(rec.Run.Events[len(rec.Run.Events)-1].Payload, &e.Why)
	return e
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
	case kind == machine.KindControl, kind == machine.KindDecided, kind == machine.KindSignal:
		err = signalOf(in, settings, rec)
	case kind == machine.KindPending && rec.Run == nil:
		err = attemptOf(in, settings, rec.Pending, before.Pending)
	case kind == machine.KindCancelled:
		err = cancellationOf(in, rec, before.Pending)
	case kind == machine.KindHandoff && before.Pending != nil:
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
	r, err := resultOf(rec)
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
		if e.StepID == machine.StepApply && e.EventType != runevents.StepStarted &&
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
	if len(rec.Run.Events) == 0 {
		return errors.New("the record has no events")
	}
	var why machine.Cancellation
	last := &rec.Run.Events[len(rec.Run.Events)-1]
	if err := json.Unmarshal(last.Payload, &why); err != nil {
		return err
	}
	in.Tail = tailOf(rec.Run, p)
	in.Event = &machine.Cancel{Signal: &machine.Signal{
		Kind: machine.SignalCancel, Run: runevents.Identity{RunID: why.SignalID},
		RunID: rec.Run.RunID, Force: why.Code == machine.CancelledByForce, Reason: why.Reason,
	}}
	return nil
}

// tailOf returns the end of a pending command's run before a record with the next events: the
// attempts' events that the record lacks are on the run's own subject.
func tailOf(next *runevents.Run, p *apply.Pending) *machine.RunTail {
	stored := slices.DeleteFunc(machine.OfAttempts(p.Attempt), func(e runevents.Event) bool {
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
	said, err := machine.SignalIn(rec.Run)
	if err != nil {
		return err
	}
	signal := &machine.Signal{
		Kind: said.Signal, Run: rec.Run.Identity, TownID: said.TownID, RunID: said.RunID,
		HandoffID: said.HandoffID, HandoffHash: said.HandoffHash, ActorID: said.ActorID,
		Reason: said.Reason,
	}
	in.Event = signal
	if rec.Run.PlanID != machine.SignalPlan || rec.Run.PlanVersion != machine.SignalVersion ||
		said.TownID != rec.TownID {
		return fmt.Errorf("the run, of the plan %q, is not one of a signal to the town",
			rec.Run.PlanID)
	}
	if rec.Kind == machine.KindSignal {
		in.Event = &machine.Told{Signal: signal, Code: wire.Code(said.Code)}
	}
	if rec.Paused != nil {
		signal.DrainTimeout = time.Duration(rec.Paused.DrainTimeoutMs) * time.Millisecond
	}
	if a := approval.List(rec.Approvals).Decided(rec.Run.RunID); a != nil {
		settings.ApprovalTimeout = a.Expires.Sub(a.Decision.At)
	}
	return nil
}

// retryOf returns the run that a record's run retries, or nil.
func retryOf(rec *commitlog.Record) *apply.RetryOf {
	if rec.Pending != nil && rec.Run != nil && rec.Pending.Run.RunID == rec.Run.RunID {
		return rec.Pending.RetryOf
	}
	return rec.RetryOf
}

// deliveryOf sets an input to the delivery of a record's handoff.
func deliveryOf(in *machine.Input, settings *machine.Settings, rec *commitlog.Record) error {
	encoded := rec.Handoff
	if p := rec.Pending; p != nil {
		encoded = p.Handoff
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
		Begin: beginOf(rec.Run), RetryOf: retryOf(rec)}
	in.Event = e
	if (e.Begin.Retry == nil) != (e.RetryOf == nil) ||
		e.RetryOf != nil && e.RetryOf.RunID != e.Begin.Retry.RunID {
		return errors.New("the record and the signal in its run do not name one retried run")
	}
	if rec.Kind == machine.KindRefused {
		e.Prior, err = priorOf(rec, settings, h)
	}
	return err
}

// beginOf returns how the events of a run begin.
func beginOf(run *runevents.Run) (begin machine.Begin) {
	for i := range run.Events {
		e := &run.Events[i]
		switch e.EventType {
		case runevents.RunQueued:
			begin.Start = machine.StartQueued
			begin.Waited = endOf(&commitlog.Record{Run: run}).Sub(emittedAt(e))
		case runevents.RunResumed:
			begin.Start = machine.StartResumed
		case runevents.RunStarted:
			if run.FirstSeq > 1 {
				begin.Start = machine.StartWaited
			}
		case runevents.SignalAccepted:
			if said, err := machine.SignalIn(run); err == nil {
				begin.Retry = &machine.Retry{RunID: said.RunID, ActorID: said.ActorID,
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
	r, err := resultOf(rec)
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
