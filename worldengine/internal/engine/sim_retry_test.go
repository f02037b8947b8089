package engine

import (
	"context"
	"fmt"
	"slices"
	"time"

	"worldengine/dedupe"
	"worldengine/handoff"
	"worldengine/worldengine/internal/core/apply"
	"worldengine/worldengine/internal/core/machine"
)

// retry is act for a seed in which many runs fail: one or two people retry a run, each at some
// engine. Most choose one of the last runs that failed without a game, some any run.
func (o *simOperator) retry() {
	o.sim.mu.Lock()
	busy := o.deciding > 0
	o.sim.mu.Unlock()
	if busy || o.sim.quiet {
		return
	}
	s := o.sim
	var failed, ended []string
	for _, m := range slices.Backward(s.log.messages) {
		rec := readSimRecord(m)
		if rec.Result == nil || len(failed) == 2 {
			continue
		}
		ended = append(ended, rec.Run.RunID)
		if rec.Kind == machine.KindConcluded && apply.MayBeRetried(simReceipt(m, rec).ReasonCode) {
			failed = append(failed, rec.Run.RunID)
		}
	}
	if s.rng.IntN(8) > 0 {
		ended = failed
	}
	if len(ended) == 0 {
		return
	}
	runID := ended[s.rng.IntN(len(ended))]
	for person := range 1 + s.rng.IntN(2) {
		given := Signal{
			Kind: machine.SignalRetry, RunID: runID, ActorID: fmt.Sprint("person ", person),
		}
		engine := s.engines[s.rng.IntN(len(s.engines))]
		s.trace("%s tells engine %d: %s %s", given.ActorID, engine.number, given.Kind, given.RunID)
		o.person(engine, given.ActorID, func(ctx context.Context) {
			_, _ = engine.Signals().Retry(ctx, given, 5*time.Second) // the log says what came of it
		})
	}
}

// simReceipt returns the receipt of a record that accepted a key.
func simReceipt(m *simMessage, rec *machine.Record) *dedupe.Receipt {
	receipt, err := dedupe.Read(rec.TownID, m.seq, rec.Run.RunID, rec.Result)
	if err != nil {
		panic(err)
	}
	return receipt
}

// prior returns the receipt that a handoff was judged by. It is none if its run retries another
// one, whose receipt the key has to have.
func (h *simHistory) prior(asked *handoff.Handoff, of *apply.RetryOf) *dedupe.Receipt {
	now := h.receipts[placeOf(asked)]
	if of == nil {
		return now
	}
	h.must(now != nil && now.RunID == of.RunID && now.LogSeq == of.LogSeq &&
		apply.MayBeRetried(now.ReasonCode),
		"run %s was tried again, and the key has another result", of.RunID)
	return nil
}

// mustBeFree checks that the key of an accepted handoff was free.
func (h *simHistory) mustBeFree(asked *handoff.Handoff, of *apply.RetryOf) {
	prior := h.prior(asked, of)
	h.must(prior == nil || h.mayForget(prior, asked), "the key of %s was accepted twice",
		asked.Command)
}

// mayForget reports whether the log need not keep the receipt of a key any more: the town has moved
// on since, or the handoff asks for another epoch than its town's.
func (h *simHistory) mayForget(prior *dedupe.Receipt, asked *handoff.Handoff) bool {
	if !h.short() || prior == nil {
		return false
	}
	first := parsed(readSimRecord(h.log.messages[prior.LogSeq-1]).Handoff)
	return first.Requirements.ExpectedDecisionEpoch < h.epochs[asked.Proposal.TownID]
}

// recordReceipt records how a pending command changes its key's receipt: until it ends there is none, and if
// it is cancelled the earlier one comes back.
func (h *simHistory) recordReceipt(asked *handoff.Handoff, of *apply.RetryOf) {
	at := placeOf(asked)
	h.mustBeFree(asked, of)
	h.retried[at] = h.receipts[at]
	delete(h.receipts, at)
}

func (h *simHistory) gaveBack(asked *handoff.Handoff) {
	at := placeOf(asked)
	if h.receipts[at] = h.retried[at]; h.receipts[at] == nil {
		delete(h.receipts, at)
	}
}
