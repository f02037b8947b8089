package lifecycle

import (
	"fmt"

	"worldengine/runevents"
	"worldengine/worldengine/apply"
)

// EmitResumed continues a pending handoff's run behind the record of the attempt before: it emits
// that attempt's failure, and the start of this one if it has started. p has emitted nothing yet.
func EmitResumed(p *runevents.Producer, pending *apply.Pending, started bool) error {
	before := max(pending.Attempt-1, 1)
	p.ResumeAt(runevents.RunRunning, ofApply(runevents.StepStarted, before))
	p.Persisted(pending.Emitted + 1)
	p.UseIDs(pending.EventIDs)
	switch {
	case pending.Attempt == before:
		return nil
	case pending.Last == nil:
		return fmt.Errorf("attempt %d without the end of the one before", pending.Attempt)
	}
	n := emitter{producer: p}
	n.failAttempt(before, errorOf(pending.Last), pending.Last.At)
	if started {
		n.startAttempt(pending.Attempt)
	}
	return n.err
}
