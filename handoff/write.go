package handoff

import (
	"math"

	"github.com/go-json-experiment/json/jsontext"
)

// writer writes handoffs and results by hand, since each commit writes both. What it writes is what
// marshal writes; a test holds it against that. It fails on what Parse and NewResult never make,
// and then marshal writes it, or says why it cannot be written.
type writer struct {
	b      []byte
	failed bool
}

// handoffSize and resultSize are the room for what most handoffs and results take.
const (
	handoffSize = 1536
	resultSize  = 1280
)

func (w *writer) handoff(h *Handoff) []byte {
	w.b = make([]byte, 0, handoffSize)
	w.text(`{"schemaVersion":`, h.SchemaVersion)
	w.text(`,"handoffId":`, h.HandoffID)
	w.bool(`,"advisory":`, h.Advisory)
	w.text(`,"proposalId":`, h.ProposalID)
	w.text(`,"idempotencyKey":`, h.IdempotencyKey)
	w.text(`,"snapshotHash":`, h.SnapshotHash)
	w.integer(`,"decisionEpoch":`, h.DecisionEpoch)
	w.proposal(&h.Proposal)
	w.text(`,"command":`, h.Command)
	w.text(`,"executionRequirements":{"expectedSnapshotHash":`, h.Requirements.ExpectedSnapshotHash)
	w.integer(`,"expectedDecisionEpoch":`, h.Requirements.ExpectedDecisionEpoch)
	w.preconditions(h.Requirements.Preconditions)
	w.raw(`}}`)
	return w.b
}

func (w *writer) proposal(p *Proposal) {
	w.text(`,"proposal":{"schemaVersion":`, p.SchemaVersion)
	w.text(`,"proposalId":`, p.ProposalID)
	w.text(`,"snapshotHash":`, p.SnapshotHash)
	w.integer(`,"decisionEpoch":`, p.DecisionEpoch)
	w.text(`,"type":`, string(p.Type))
	w.text(`,"actorId":`, p.ActorID)
	w.text(`,"townId":`, p.TownID)
	w.number(`,"priority":`, p.Priority)
	w.text(`,"reason":`, p.Reason)
	w.raw(`,"reasonTags":[`)
	for i, tag := range p.ReasonTags {
		w.text(comma(i), tag)
	}
	w.raw(`],"args":{`)
	for name, value := range p.Args {
		w.text("", name)
		w.text(":", value)
	}
	w.failed = w.failed || len(p.Args) > 1 // which have an order
	w.raw(`}`)
	if len(p.Preconditions) > 0 {
		w.preconditions(p.Preconditions)
	}
	w.raw(`}`)
}

func (w *writer) preconditions(list []Precondition) {
	w.raw(`,"preconditions":[`)
	for i := range list {
		p := &list[i]
		w.raw(comma(i))
		w.text(`{"kind":`, string(p.Kind))
		if p.TargetID != "" {
			w.text(`,"targetId":`, p.TargetID)
		}
		if p.Field != "" {
			w.text(`,"field":`, p.Field)
		}
		const expected = `,"expected":`
		switch v := p.Expected.(type) {
		case nil:
		case string:
			w.text(expected, v)
		case float64:
			w.number(expected, v)
		case bool:
			w.bool(expected, v)
		default:
			w.failed = true
		}
		w.raw(`}`)
	}
	w.raw(`]`)
}

func (w *writer) result(r *Result) []byte {
	w.b = make([]byte, 0, resultSize)
	w.text(`{"schemaVersion":`, r.SchemaVersion)
	w.text(`,"resultId":`, r.ResultID)
	w.text(`,"handoffId":`, r.HandoffID)
	w.text(`,"proposalId":`, r.ProposalID)
	w.text(`,"idempotencyKey":`, r.IdempotencyKey)
	w.text(`,"snapshotHash":`, r.SnapshotHash)
	w.integer(`,"decisionEpoch":`, r.DecisionEpoch)
	w.text(`,"command":`, r.Command)
	w.text(`,"status":`, string(r.Status))
	w.bool(`,"accepted":`, r.Accepted)
	w.bool(`,"executed":`, r.Executed)
	w.text(`,"reasonCode":`, string(r.ReasonCode))
	w.evaluation(&r.Evaluation)
	if s := r.WorldState; s != nil {
		w.raw(`,"worldState":`)
		w.worldState(s)
	}
	w.raw(`}`)
	return w.b
}

func (w *writer) evaluation(e *Evaluation) {
	w.raw(`,"evaluation":{"preconditions":`)
	w.preconditionReport(&e.Preconditions)
	w.raw(`,"staleCheck":`)
	w.staleReport(&e.StaleCheck)
	w.raw(`,"duplicateCheck":`)
	w.duplicateReport(&e.DuplicateCheck)
	w.raw(`}`)
}

func (w *writer) preconditionReport(r *PreconditionReport) {
	w.bool(`{"evaluated":`, r.Evaluated)
	w.bool(`,"passed":`, r.Passed)
	w.raw(`,"failures":[`)
	for i, f := range r.Failures {
		w.raw(comma(i))
		w.text(`{"kind":`, string(f.Kind))
		w.text(`,"detail":`, f.Detail)
		w.raw(`}`)
	}
	w.raw(`]}`)
}

func (w *writer) staleReport(r *StaleReport) {
	w.bool(`{"evaluated":`, r.Evaluated)
	w.bool(`,"passed":`, r.Passed)
	w.optional(`,"actualSnapshotHash":`, r.ActualSnapshotHash)
	w.b = appendEpoch(w.b, `,"actualDecisionEpoch":`, r.ActualDecisionEpoch)
	w.raw(`}`)
}

func (w *writer) duplicateReport(r *DuplicateReport) {
	w.bool(`{"evaluated":`, r.Evaluated)
	w.bool(`,"duplicate":`, r.Duplicate)
	w.optional(`,"duplicateOf":`, r.DuplicateOf)
	w.raw(`}`)
}

func (w *writer) worldState(s *WorldState) {
	w.optional(`{"postExecutionSnapshotHash":`, s.SnapshotHash)
	w.b = appendEpoch(w.b, `,"postExecutionDecisionEpoch":`, s.DecisionEpoch)
	w.raw(`}`)
}

func (w *writer) raw(s string) { w.b = append(w.b, s...) }

func (w *writer) bool(before string, v bool) { w.b = appendBool(w.b, before, v) }

func (w *writer) integer(before string, n int64) { w.b = appendEpoch(w.b, before, &n) }

// text fails on what is no UTF-8.
func (w *writer) text(before, s string) {
	var err error
	w.b, err = jsontext.AppendQuote(append(w.b, before...), s)
	w.failed = w.failed || err != nil
}

// optional writes null where s is nil.
func (w *writer) optional(before string, s *string) {
	if s == nil {
		w.raw(before)
		w.raw("null")
		return
	}
	w.text(before, *s)
}

// number fails on what JSON does not have, and on -0, which AppendNumber writes as 0.
func (w *writer) number(before string, f float64) {
	if math.IsNaN(f) || math.IsInf(f, 0) || f == 0 && math.Signbit(f) {
		w.failed = true
		return
	}
	w.b = AppendNumber(append(w.b, before...), f)
}

// comma returns what stands before the element of an array.
func comma(i int) string {
	if i == 0 {
		return ""
	}
	return ","
}
