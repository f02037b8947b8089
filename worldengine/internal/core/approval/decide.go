package approval

import (
	"fmt"
	"slices"
	"time"

	"worldengine/worldengine/wire"
)

// SignalRefusal is why a signal is refused: a decision about an approval, or another one (package machine).
type SignalRefusal struct {
	Code    wire.Code
	Message string
}

// HandoffRef names the handoff in a town that a person decides about.
type HandoffRef struct {
	HandoffID string
	// HandoffHash is Hash of the handoff that the person was shown; "" if unknown.
	HandoffHash string
}

// Decide returns the list with a decision, which lapses after timeout, and the entry decided about.
// hash is the hash of the town's state. If the same person has made the same decision before, the
// list and the entry stay unchanged.
func (l List) Decide(
	ref HandoffRef, hash string, d Decision, timeout time.Duration,
) (List, Request, *SignalRefusal) {
	i, refused := l.findToDecide(ref, hash, d.At)
	if refused != nil {
		return nil, Request{}, refused
	}
	switch status := l[i].Status(hash, d.At); status {
	case Waiting:
	case Approved, Denied, Used:
		prior := l[i].Decision
		if prior.Approved == d.Approved && prior.ActorID == d.ActorID {
			return l, l[i], nil
		}
		return nil, Request{}, &SignalRefusal{wire.CodeAlreadyDecided, decidedText(&l[i], status)}
	case Stale:
		return nil, Request{}, &SignalRefusal{wire.CodeApprovalStale,
			"the town has changed since it was asked for, " +
				"and a handoff that was made from its state of then is stale"}
	default:
		return nil, Request{}, &SignalRefusal{wire.CodeApprovalStale, "it has waited for too long, since " +
			l[i].At.Format(time.RFC3339) + "; it waits again when its handoff is sent again"}
	}
	after := slices.Clone(l)
	a := &after[i]
	a.Decision, a.Expires = &d, d.At.Add(timeout)
	decided := *a
	if !d.Approved {
		a.clearHandoff()
	}
	return after, decided, nil // Record.SetState closes stale ones
}

// decidedText describes an earlier decision about a handoff, and the remedy.
func decidedText(a *Request, status Status) string {
	prior := a.Decision
	at := prior.At.Format(time.RFC3339)
	switch {
	case status == Used:
		return fmt.Sprintf("%s approved it at %s, and it was accepted for execution since; "+
			"run %s has the outcome", prior.ActorID, at, a.RunID)
	case status == Approved:
		return fmt.Sprintf("%s approved it at %s, and it is executed when its handoff is sent "+
			"again. An approval is not taken back: to keep it from being used, pause the town or "+
			"change its state before that", prior.ActorID, at)
	}
	return fmt.Sprintf("%s denied it at %s. A denial is not taken back: the agent has to propose "+
		"anew, under another proposalId", prior.ActorID, at)
}

// findToDecide returns the index of the entry that a question is about. Among the entries with the
// question's id, and its hash if given, it is the only open one or, if none is open, the last one.
func (l List) findToDecide(ref HandoffRef, hash string, now time.Time) (int, *SignalRefusal) {
	found, open, any := -1, 0, false
	for i := range l {
		entry := &l[i]
		if entry.HandoffID != ref.HandoffID {
			continue
		}
		any = true
		if ref.HandoffHash != "" && !entry.matches(ref.HandoffID, ref.HandoffHash) {
			continue
		}
		isOpen := entry.Status(hash, now).IsOpen()
		if isOpen || open == 0 {
			found = i
		}
		if isOpen {
			open++
		}
	}
	switch {
	case !any:
		return -1, &SignalRefusal{wire.CodeUnknownApproval,
			"no handoff with this id waits for an approval in the town, or did lately"}
	case found < 0:
		return -1, &SignalRefusal{wire.CodeApprovalDiffers,
			"the town asked about another handoff under this handoffId than the one with this " +
				"handoffHash; list the approvals again and look at it"}
	case open > 1:
		return -1, &SignalRefusal{wire.CodeApprovalAmbiguous, fmt.Sprintf(
			"%d different handoffs with this handoffId wait in the town; name one by its "+
				"handoffHash, which approval.list has", open)}
	}
	return found, nil
}
