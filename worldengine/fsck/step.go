package fsck

import (
	"errors"
	"time"

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

// step steps the town before a record again, by the input that the record has, and compares the two
// records byte for byte.
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
	switch rec.Kind {
	case machine.KindPut:
		err = putOf(in, rec, before)
	case machine.KindControl, machine.KindDecided:
		err = signalOf(in, settings, rec)
	default:
		err = deliveryOf(in, settings, rec)
	}
	return in, settings, err
}

// putOf gives an input the put of a record.
func putOf(in *machine.Input, rec *commitlog.Record, before machine.Town) error {
	state, err := town.ParseStored(rec.Snapshot)
	in.Event = &machine.Put{
		State: state, Expected: before.State.Hash, ActorID: rec.ActorID,
		Attributes: machine.Attributes{Apply: rec.Apply, Approval: rec.Policy},
	}
	return err
}

// signalOf gives an input the signal of a record.
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

// deliveryOf gives an input the delivery of the handoff of a record.
func deliveryOf(in *machine.Input, settings *machine.Settings, rec *commitlog.Record) error {
	if rec.Run == nil {
		return errors.New("the record has no run")
	}
	encoded, retryOf := rec.Handoff, rec.RetryOf
	if p := rec.Pending; p != nil {
		encoded, retryOf = p.Handoff, p.RetryOf
		settings.Apply, settings.Deadline = p.Via, p.Deadline.Sub(p.Accepted)
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

// priorOf returns the receipt of which a refused handoff is a duplicate, as far as its result says;
// nil if it is none.
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

// emittedAt returns when an event was emitted, the zero time if it has no such time.
func emittedAt(e *runevents.Event) time.Time {
	at, _ := time.Parse(time.RFC3339Nano, e.EmittedAt)
	return at
}

// endOf returns when the last event of a record was emitted, the zero time if it has no such time.
func endOf(rec *commitlog.Record) time.Time {
	if rec.Run == nil || len(rec.Run.Events) == 0 {
		return time.Time{}
	}
	return emittedAt(&rec.Run.Events[len(rec.Run.Events)-1])
}
