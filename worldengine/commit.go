package worldengine

import (
	"context"
	"fmt"

	"github.com/nats-io/nats.go/jetstream"

	"worldengine/dedupe"
	"worldengine/handoff"
	"worldengine/runevents"
	"worldengine/worldengine/town"
)

// decision is a judged handoff on its way into the log.
type decision struct {
	handoff  *handoff.Handoff
	producer *runevents.Producer
	queued   bool
	before   entry
	after    town.State // of an accepted handoff
	result   *handoff.Result
}

// answer makes the answer and the record's parts: the result's bytes and the run's events.
func (d *decision) answer() (Answer, error) {
	wire, err := d.result.MarshalWire()
	if err != nil {
		return Answer{}, err
	}
	if err := narrate(d.producer, d.handoff, d.result, d.queued); err != nil {
		return Answer{}, fmt.Errorf("worldengine: the events of a run: %w", err)
	}
	return Answer{RunID: d.producer.Run().RunID, Result: d.result, JSON: wire}, nil
}

// commitAccepted stores an executed or failed handoff: the state, the receipt and the events in
// one guarded message. Only then is there an answer.
func (e *Engine) commitAccepted(ctx context.Context, d *decision) (Answer, error) {
	answer, err := d.answer()
	if err != nil {
		return Answer{}, err
	}
	townID := d.handoff.Proposal.TownID
	rec := record{Kind: kindHandoff, TownID: townID, Result: answer.JSON, Run: d.producer.Run()}
	msg, err := rec.message(logSubject(e.config.World, TownToken(townID)), &d.after)
	if err != nil {
		return Answer{}, err
	}
	msg.Header[jetstream.MsgIDHeader] = []string{d.result.IdempotencyKey}
	seq, err := e.log.commit(ctx, msg, d.before.seq)
	if err != nil {
		e.towns.forget(townID) // whatever it is now, the log knows
		return Answer{}, err
	}
	e.receipts.Remember(&dedupe.Receipt{
		Key: d.result.IdempotencyKey, LogSeq: seq, RunID: answer.RunID,
		HandoffID: d.result.HandoffID, ResultID: d.result.ResultID, Result: answer.JSON,
	})
	e.towns.set(townID, entry{seq: seq, loadedSeq: d.before.loadedSeq, state: d.after})
	return answer, nil
}

// commitRefused stores the run of a refused handoff. It changes no town and consumes no key.
func (e *Engine) commitRefused(ctx context.Context, d *decision) (Answer, error) {
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
	return answer, nil
}

// unknownTownToken is where the refused runs of towns that do not exist stand together: a subject
// of its own for every town id that anybody makes up would cost memory for ever. No town has this
// token.
const unknownTownToken = "=unknown"
