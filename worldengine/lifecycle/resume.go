package lifecycle

import (
	"worldengine/handoff"
	"worldengine/runevents"
	"worldengine/worldengine/apply"
)

// EmitResumed makes p, the producer of the run of a pending handoff, go on where the first commit
// of the run ended: it emits the failures of the attempts before this one and the starts of the
// next, of this one if it has started. Those that were stored before are known by their keys.
func EmitResumed(
	p *runevents.Producer, h *handoff.Handoff, evaluation *handoff.Evaluation,
	pending *apply.Pending, started bool,
) error {
	if err := EmitAccepted(p, h, evaluation, Begin{}); err != nil {
		return err
	}
	p.Persisted(pending.Emitted + 1)
	p.UseIDs(pending.EventIDs)
	return EmitAttempts(p, pending.Attempt, started, pending.Last)
}
