package worldengine

import (
	"context"
	"crypto/rand"
	"fmt"

	"github.com/nats-io/nats.go/jetstream"

	"worldengine/dedupe"
	"worldengine/handoff"
	"worldengine/worldengine/failpoint"
	"worldengine/worldengine/town"
)

// judgement is a judged delivery on its way into the log.
type judgement struct {
	*delivery
	before entry
	after  town.State // of an accepted handoff
	result *handoff.Result
}

// answer makes the answer and the record's parts: the result's bytes and the run's events.
func (d *judgement) answer() (Answer, error) {
	wire, err := d.result.MarshalWire()
	if err != nil {
		return Answer{}, err
	}
	if err := narrate(d.producer, d.handoff, d.result, d.start); err != nil {
		return Answer{}, fmt.Errorf("worldengine: the events of a run: %w", err)
	}
	return Answer{RunID: d.producer.Run().RunID, Result: d.result, JSON: wire}, nil
}

// commitAccepted stores an executed or failed handoff: the state, the receipt and the events in
// one guarded message. Only then is there an answer.
func (e *Engine) commitAccepted(ctx context.Context, d *judgement) (Answer, error) {
	answer, err := d.answer()
	if err != nil {
		return Answer{}, err
	}
	townID := d.handoff.Proposal.TownID
	rec := record{Kind: kindHandoff, TownID: townID, Result: answer.JSON, Run: d.producer.Run()}
	after := d.before
	after.state = d.after
	msg, err := rec.message(logSubject(e.config.World, TownToken(townID)), &after)
	if err != nil {
		return Answer{}, err
	}
	msg.Header[jetstream.MsgIDHeader] = []string{d.result.IdempotencyKey}
	if after.seq, err = e.log.commit(ctx, msg, d.before.seq); err != nil {
		e.towns.forget(townID) // whatever it is now, the log knows
		return Answer{}, err
	}
	failpoint.At(failpoint.Committed)
	e.receipts.Remember(&dedupe.Receipt{
		Key: d.result.IdempotencyKey, LogSeq: after.seq, RunID: answer.RunID,
		HandoffID: d.result.HandoffID, ResultID: d.result.ResultID, Result: answer.JSON,
	})
	e.towns.set(townID, after)
	return answer, nil
}

// commitPending stores an accepted handoff whose command is to be applied outside the engine: the first
// commit of two. It returns errApplying; the answer comes with the second.
func (e *Engine) commitPending(
	ctx context.Context, d *judgement, evaluation *handoff.Evaluation, expected town.State, via Binding,
) error {
	townID, h := d.handoff.Proposal.TownID, d.handoff
	wire, err := h.MarshalWire()
	if err != nil {
		return err
	}
	if err := narrateAccepted(d.producer, h, evaluation, d.start); err != nil {
		return fmt.Errorf("worldengine: the events of a run: %w", err)
	}
	if err := e.mark(ctx, townID); err != nil {
		return err
	}
	failpoint.At(failpoint.Marked)
	run, now, after := d.producer.Run(), e.config.Now().UTC(), d.before
	after.pending = &pending{
		Via: via, Handoff: wire, Expected: expected.Canonical, Run: run.Identity,
		Emitted: run.FirstSeq + int64(len(run.Events)) - 1, IDSeed: rand.Text(),
		Accepted: now, Attempt: 1, NotBefore: now, Deadline: now.Add(e.config.Plugin.Deadline),
	}
	rec := record{Kind: kindPending, TownID: townID, Run: run}
	msg, err := rec.message(logSubject(e.config.World, TownToken(townID)), &after)
	if err != nil {
		return err
	}
	msg.Header[jetstream.MsgIDHeader] = []string{h.IdempotencyKey}
	if after.seq, err = e.log.commit(ctx, msg, d.before.seq); err != nil {
		e.towns.forget(townID) // whatever it is now, the log knows
		return err
	}
	failpoint.At(failpoint.Accepted)
	if d.closed {
		e.reopenRun(ctx, townID, run.Identity, after.pending.Emitted)
	}
	e.towns.set(townID, after)
	if err := e.see(townID, after, d.done); err != nil {
		return err
	}
	return errApplying
}

// commitRefused stores the run of a refused handoff. It changes no town and consumes no key.
func (e *Engine) commitRefused(ctx context.Context, d *judgement) (Answer, error) {
	answer, err := d.answer()
	if err != nil {
		return Answer{}, err
	}
	townID := d.handoff.Proposal.TownID
	rec := record{Kind: kindRefused, TownID: townID, Result: answer.JSON, Run: d.producer.Run()}
	token := TownToken(townID)
	if !d.before.state.Exists() {
		token = unknownTownToken
	}
	msg, err := rec.message(refusedSubject(e.config.World, token), nil)
	if err != nil {
		return Answer{}, err
	}
	judged := &d.before.seq
	if d.result.Status == handoff.Duplicate {
		judged = nil
	}
	if err := e.log.refuse(ctx, msg, townID, judged); err != nil {
		return Answer{}, err
	}
	failpoint.At(failpoint.Committed)
	return answer, nil
}

// unknownTownToken is where the refused runs of towns that do not exist stand together: a subject
// of its own for every town id that anybody makes up would cost memory for ever. No town has this
// token.
const unknownTownToken = "=unknown"
