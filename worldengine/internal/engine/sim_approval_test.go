package engine

import (
	"context"
	"errors"
	"fmt"
	"slices"

	"worldengine/handoff"
	"worldengine/runevents"
	"worldengine/worldengine/internal/core/approval"
	"worldengine/worldengine/internal/core/machine"
	"worldengine/worldengine/internal/kit/layout"
	"worldengine/worldengine/wire"
)

// strict reports whether people of the seed deny all proposals of a town, and every type of
// proposals requires an approval, so that towns have many denials of one state. There are no
// pauses, and more steps than with other seeds.
func (s *sim) strict() bool { return s.seed%10 == 3 }

// policy has the types of proposals that require a person's approval.
func (s *sim) policy() approval.Policy {
	if s.strict() {
		return approval.Policy{Types: handoff.ProposalTypes()}
	}
	return approval.Policy{Types: []handoff.ProposalType{handoff.AdvanceProject}}
}

// decide makes one or two people decide about a waiting proposal, each at some engine, and reports
// whether one does.
func (o *simOperator) decide() bool {
	s := o.sim
	var waiting []Signal
	for i := range simTowns {
		townID := fmt.Sprint("town ", i)
		for _, a := range readSimRecord(s.log.last(layout.LogSubject("main",
			wire.TownToken(townID)))).Approvals {
			waiting = append(waiting, Signal{TownID: townID, HandoffID: a.HandoffID,
				HandoffHash: a.HandoffHash})
		}
	}
	if len(waiting) == 0 {
		return false
	}
	signal := waiting[s.rng.IntN(len(waiting))]
	if s.strict() && s.rng.IntN(8) > 0 {
		o.denyAll(signal.TownID)
		return true
	}
	people := 1 + s.rng.IntN(2)
	for person := range people {
		given := signal
		given.ActorID = fmt.Sprint("person ", person)
		if given.Kind = machine.SignalApprove; s.rng.IntN(3) == 0 {
			given.Kind = machine.SignalDeny
		}
		engine, submit := s.engines[s.rng.IntN(len(s.engines))], s.rng.IntN(2) == 0
		s.trace("%s tells engine %d: %s %s", given.ActorID, engine.number, given.Kind,
			given.HandoffID)
		o.person(engine, given.ActorID, func(ctx context.Context) {
			o.sendDecision(ctx, engine, given, submit)
		})
	}
	return true
}

// denyAll makes a person deny a town's waiting proposals, one after another at some engine.
func (o *simOperator) denyAll(townID string) {
	s := o.sim
	var signals []Signal
	rec := readSimRecord(s.log.last(layout.LogSubject("main", wire.TownToken(townID))))
	for i := range rec.Approvals {
		if a := &rec.Approvals[i]; a.Decision == nil && a.Handoff != nil {
			signals = append(signals, Signal{TownID: townID, HandoffID: a.HandoffID,
				HandoffHash: a.HandoffHash, Kind: machine.SignalDeny, ActorID: "a strict person"})
		}
	}
	slices.Reverse(signals) // the one that was asked for last first
	engine := s.engines[s.rng.IntN(len(s.engines))]
	s.trace("a strict person denies %d proposals of %s at engine %d", len(signals), townID,
		engine.number)
	o.person(engine, "a strict person", func(ctx context.Context) {
		for _, given := range signals {
			o.sendDecision(ctx, engine, given, false)
		}
	})
}

// person has a person act at an engine.
func (o *simOperator) person(engine *simEngine, name string, act func(ctx context.Context)) {
	o.sim.mu.Lock()
	o.deciding++
	o.sim.mu.Unlock()
	go func() {
		act(context.WithValue(engine.alive, simAsker{}, "for "+name))
		o.sim.mu.Lock()
		o.deciding--
		o.sim.mu.Unlock()
	}()
}

// sendDecision makes a person decide and, if the person approves and submits, takes the result of
// the handoff when it comes.
func (o *simOperator) sendDecision(
	ctx context.Context, engine *simEngine, given Signal, submit bool,
) {
	entry, delivery, err := engine.Signals().Decide(ctx, given, submit)
	o.sim.mu.Lock()
	var refused *SignalError
	if errors.As(err, &refused) {
		o.sim.trace("%s is refused: %s", given.ActorID, refused.Code)
	}
	if err == nil {
		o.decided = append(o.decided, given)
	}
	o.sim.mu.Unlock()
	if delivery != nil && entry.Handoff != nil {
		go o.submit(ctx, delivery, &entry)
	}
}

func (o *simOperator) submit(ctx context.Context, delivery *Redelivery, entry *approval.Request) {
	if answer, err := delivery.Wait(ctx); err == nil {
		o.sim.mu.Lock()
		defer o.sim.mu.Unlock()
		o.submitted = append(o.submitted, simSubmitted{entry.Handoff, answer})
	}
}

// checkTold checks that the log has people's answers, when all of it was read.
func (h *simHistory) checkTold() {
	for _, given := range h.operator.decided {
		h.must(h.decisions[decisionKey(given.HandoffHash, given.ActorID,
			given.Kind == machine.SignalApprove)], "%s was told that the decision %s about %s "+
			"counts, of which the log knows nothing", given.ActorID, given.Kind, given.HandoffID)
	}
	for _, told := range h.operator.submitted {
		h.answered(parsed(told.handoff), told.answer)
	}
	for _, id := range h.operator.cancelled {
		snapshot, _, err := runevents.Project(id, h.runs[id])
		// By force a retry ends in doubt.
		retry := slices.ContainsFunc(h.runs[id], func(r runevents.Record) bool {
			return r.EventType == runevents.SignalAccepted
		})
		h.must(err == nil && (snapshot.Status == runevents.RunStatusCancelled ||
			retry && snapshot.Status == runevents.RunStatusFailed),
			"an operator was told that run %s is cancelled, and it is %s", id, snapshot.Status)
	}
}

// decisionKey names a person's decision about the handoff with a hash.
func decisionKey(hash, person string, approved bool) string {
	return fmt.Sprint(hash, " ", person, " ", approved)
}

// decided notes the decision of a signal.
func (h *simHistory) decided(rec *machine.Record) {
	a := rec.Approvals.DecidedBy(rec.Run.RunID)
	h.decisions[decisionKey(a.HandoffHash, a.Decision.ActorID, a.Decision.Approved)] = true
}
