package approval

import (
	"fmt"
	"time"

	"github.com/go-json-experiment/json"

	"worldengine/handoff"
)

// Judgement is a list's verdict about a handoff whose type takes an approval.
type Judgement struct {
	// Approved is the decision with which the handoff may be executed; nil if it may not.
	Approved *Decision
	// Reason and Detail say why it may not.
	Reason handoff.ReasonCode
	Detail string
	// Ask is set if the list has to have the handoff from now on.
	Ask bool
	// At is the time for which Approved or Ask was found.
	At time.Time
}

// Judge returns the verdict about a handoff that was made from the state of the town, and whose type
// takes an approval by the town's policy; encoded is the handoff as the engine writes it. A decision
// is about the very bytes that the person was shown.
func (l List) Judge(p Policy, h *handoff.Handoff, encoded []byte, now time.Time) Judgement {
	required := Judgement{
		Reason: handoff.ReasonApprovalRequired, Detail: p.Detail(h.Proposal.Type), At: now,
	}
	i, status := l.find(h.HandoffID, Hash(encoded), h.SnapshotHash, now)
	switch status {
	case Denied:
		d := l[i].Decision
		detail := "Denied by " + d.ActorID
		if d.Reason != "" {
			detail += ": " + d.Reason
		}
		return Judgement{Reason: handoff.ReasonApprovalDenied, Detail: detail}
	case Approved:
		return Judgement{Approved: l[i].Decision, At: now}
	case Waiting:
		return required
	}
	if len(encoded) > MaxActorBytes {
		return Judgement{
			Reason: handoff.ReasonApprovalTooLarge,
			Detail: fmt.Sprintf("%s, and a handoff of %d bytes cannot wait for one: at most %d; "+
				"shorten the texts of the proposal", required.Detail, len(encoded), MaxActorBytes),
		}
	}
	if full := l.full(h, len(encoded), now); full != "" {
		return Judgement{
			Reason: handoff.ReasonApprovalsFull, Detail: required.Detail + ", and " + full,
		}
	}
	required.Ask = true
	return required
}

// find returns the last entry of a handoff and its status, "" if there is none.
func (l List) find(handoffID, handoffHash, hash string, now time.Time) (int, Status) {
	for i := len(l) - 1; i >= 0; i-- {
		if l[i].isOf(handoffID, handoffHash) {
			return i, l[i].Status(hash, now)
		}
	}
	return -1, ""
}

// full returns the bound that keeps a handoff of a size from waiting too, "" if it can.
func (l List) full(h *handoff.Handoff, size int, now time.Time) string {
	open, denied, own := 0, 0, 0
	all, ownBytes := size, size
	for i := range l {
		switch status := l[i].Status(h.SnapshotHash, now); {
		case status.IsOpen():
			open++
			all += len(l[i].Handoff)
			if l[i].proposer() == h.Proposal.ActorID {
				own++
				ownBytes += len(l[i].Handoff)
			}
		case status == Denied:
			denied++
		}
	}
	switch {
	case open >= MaxOpen || all > MaxBytes:
		return "too many proposals of the town wait for one"
	case own >= MaxActorOpen || ownBytes > MaxActorBytes:
		return "too many proposals of this actor wait for one in the town"
	case denied >= MaxDenied:
		return fmt.Sprintf("%d proposals made from this state of the town were denied; "+
			"no other waits until the town changes or the denials expire", denied)
	}
	return ""
}

// proposer returns the actor of an open entry's proposal.
func (a *Asked) proposer() string {
	var said struct {
		Proposal struct {
			ActorID string `json:"actorId"`
		} `json:"proposal"`
	}
	if json.Unmarshal(a.Handoff, &said) != nil {
		return ""
	}
	return said.Proposal.ActorID
}
