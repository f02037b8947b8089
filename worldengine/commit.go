package worldengine

import (
	"context"
	"fmt"

	"worldengine/dedupe"
	"worldengine/handoff"
	"worldengine/worldengine/apply"
	"worldengine/worldengine/approval"
	"worldengine/worldengine/commitlog"
	"worldengine/worldengine/failpoint"
	"worldengine/worldengine/lifecycle"
	"worldengine/worldengine/pending"
	"worldengine/worldengine/retry"
	"worldengine/worldengine/town"
	"worldengine/worldengine/wire"
)

// judgement is a judged delivery on its way into the log.
type judgement struct {
	*delivery
	before commitlog.Entry
	after  town.State // of an accepted handoff
	result *handoff.Result
	first  *dedupe.Receipt // of a duplicate
	// gate has the decision with which it is executed; none where it took none.
	gate approval.Judgement
	// encoded is the handoff as the record has it, once there is an answer.
	encoded []byte
}

// begin returns how the events of the run begin.
func (d *judgement) begin() lifecycle.Begin {
	begin := d.Begin()
	begin.Approval = approvalOf(&d.gate)
	return begin
}

// retryOf returns the run that the run tries again, nil where it does not.
func (d *judgement) retryOf() *apply.RetryOf {
	if d.retries == nil {
		return nil
	}
	return &d.retries.RetryOf
}

// answer makes the answer and the record's parts: the result's bytes and the run's events.
func (d *judgement) answer() (Answer, error) {
	encoded, err := d.result.MarshalWire()
	if err != nil {
		return Answer{}, err
	}
	if d.encoded, err = d.Handoff.MarshalWire(); err != nil {
		return Answer{}, err
	}
	if err := lifecycle.EmitRun(d.Producer, d.Handoff, d.result, d.begin()); err != nil {
		return Answer{}, fmt.Errorf("worldengine: the events of a run: %w", err)
	}
	return Answer{RunID: d.Producer.Run().RunID, Result: d.result, JSON: encoded, First: d.first},
		nil
}

// commitAccepted stores an executed or failed handoff: the state, the result and the events in
// one guarded message. Only then is there an answer.
func (e *Engine) commitAccepted(ctx context.Context, d *judgement) (Answer, error) {
	answer, err := d.answer()
	if err != nil {
		return Answer{}, err
	}
	townID := d.Handoff.Proposal.TownID
	addition := handoff.AdditionOf(d.Handoff)
	rec := commitlog.Record{
		Kind: commitlog.KindHandoff, TownID: townID, Result: answer.JSON, Handoff: d.encoded,
		Addition: &addition, Run: d.Producer.Run(), RetryOf: d.retryOf(),
		WorldPolicy: e.config.policy.Where(d.before.Policy),
	}
	after := d.before
	after.State = d.after
	after.Approvals = after.Approvals.Close(d.Handoff, d.encoded, answer.RunID)
	msg, err := rec.Message(wire.LogSubject(e.config.World, wire.TownToken(townID)), &after)
	if err != nil {
		return Answer{}, err
	}
	if after.Seq, err = e.log.Commit(ctx, msg, d.before.Seq); err != nil {
		e.towns.Forget(townID) // whatever it is now, the log knows
		return Answer{}, err
	}
	failpoint.At(failpoint.Committed)
	e.towns.Set(townID, after)
	return answer, nil
}

// commitPending stores an accepted handoff whose command is to be applied outside the engine: the
// first commit of two. The answer comes with the second.
func (e *Engine) commitPending(
	ctx context.Context, d *judgement, evaluation *handoff.Evaluation, expected town.State,
	via apply.Binding,
) error {
	townID, h := d.Handoff.Proposal.TownID, d.Handoff
	encoded, err := h.MarshalWire()
	if err != nil {
		return err
	}
	if err := lifecycle.EmitAccepted(d.Producer, h, evaluation, d.begin()); err != nil {
		return fmt.Errorf("worldengine: the events of a run: %w", err)
	}
	run, now, after := d.Producer.Run(), e.config.Now().UTC(), d.before
	after.Approvals = after.Approvals.Close(h, encoded, run.RunID)
	after.Pending = &apply.Pending{
		Via: via, Handoff: encoded, Expected: expected.Canonical, RetryOf: d.retryOf(),
		Run: run.Identity, Emitted: run.FirstSeq + int64(len(run.Events)) - 1,
		Accepted: now, Attempt: 1, NotBefore: now, Deadline: now.Add(e.config.Plugin.Deadline),
		Askers: []string{e.server},
	}
	if err := pending.DrawIDs(after.Pending, e.config.NewID); err != nil {
		return err
	}
	rec := commitlog.Record{
		Kind: commitlog.KindPending, TownID: townID, Run: run,
		WorldPolicy: e.config.policy.Where(d.before.Policy),
	}
	if err := e.log.CommitTown(ctx, &rec, &after, d.before.Seq); err != nil {
		e.towns.Forget(townID) // whatever it is now, the log knows
		return err
	}
	failpoint.At(failpoint.Accepted)
	if d.Closed {
		e.runs.Reopen(ctx, townID, run.Identity, after.Pending.Emitted)
	}
	e.towns.Set(townID, after)
	return e.pending.Ensure(townID, after, func(end pending.End, err error) {
		d.done(Answer{
			RunID: end.RunID, Result: end.Result, JSON: end.JSON, Embodiment: end.Embodiment,
		}, err)
	})
}

// commitRefused stores the run of a refused handoff. It changes no town and consumes no key.
func (e *Engine) commitRefused(ctx context.Context, d *judgement) (Answer, error) {
	answer, err := d.answer()
	if err != nil {
		return Answer{}, err
	}
	townID := d.Handoff.Proposal.TownID
	rec := commitlog.Record{
		Kind: commitlog.KindRefused, TownID: townID, Result: answer.JSON, Handoff: d.encoded,
		Run: d.Producer.Run(), RetryOf: d.retryOf(),
	}
	token := wire.TownToken(townID)
	if !d.before.State.Exists() {
		token = wire.UnknownTownToken
	}
	msg, err := rec.Message(wire.RefusedSubject(e.config.World, token), nil)
	if err != nil {
		return Answer{}, err
	}
	judged := &d.before.Seq
	if d.result.Status == handoff.Duplicate && !retry.Possible(d.first) {
		judged = nil // the key stays accepted, with that result
	}
	if err := e.log.Refuse(ctx, msg, townID, judged); err != nil {
		return Answer{}, err
	}
	failpoint.At(failpoint.Committed)
	return answer, nil
}

// commitTown commits a record that leaves the state of a town as it is.
func (e *Engine) commitTown(
	ctx context.Context, rec *commitlog.Record, guard uint64, after commitlog.Entry,
) error {
	msg, err := rec.Message(wire.LogSubject(e.config.World, wire.TownToken(rec.TownID)), &after)
	if err != nil {
		return err
	}
	_, err = e.log.Commit(ctx, msg, guard)
	e.towns.Forget(rec.TownID) // whatever it is now, the log knows: decisions come beside its turns
	if err == nil {
		failpoint.At(failpoint.Committed)
	}
	return err
}

// approvalOf returns what the events of a run say about the decision with which it is executed.
func approvalOf(gate *approval.Judgement) *lifecycle.Approval {
	d := gate.Approved
	if d == nil {
		return nil
	}
	return &lifecycle.Approval{
		SignalID: d.SignalID, ActorID: d.ActorID, Reason: d.Reason, At: gate.At,
	}
}
