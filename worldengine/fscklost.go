package worldengine

import (
	"context"
	"strings"

	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"

	"worldengine/handoff"
	"worldengine/runevents"
)

// A town's history loses nothing but its oldest messages, and never its last one. So the commit of an
// accepted handoff that is not in the log, though an older message of its town is, or none of the town
// at all, was lost to damage. Such a commit is known by its run events, which name the town: it is found
// within their retention. Of what else the log has, refusals and events between commits, nobody can say
// so: those stand on other subjects, and expire there.

// fsckLost are the commits that the log has lost, by their log sequence, with what is known of their town.
type fsckLost map[uint64]string

// logLost says whether an event whose log message is not there is of a commit that the log has lost, and
// reports that commit, once.
func (d *fsckEvents) logLost(ctx context.Context, got *fsckMessage) (bool, error) {
	if _, known := d.lostCommits[got.at.seq]; known {
		return true, nil
	}
	if !ofCommit(got) {
		return false, nil
	}
	token := lastToken(got.Subject()[:strings.LastIndexByte(got.Subject(), '.')])
	lost, err := d.isLost(ctx, logSubject(d.world, token), got.at.seq)
	if !lost || err != nil {
		return false, err
	}
	got.town = townOfToken(token)
	d.lostCommits[got.at.seq] = got.town
	d.wrong(got, "the log has lost the commit that this event is of", "", string(got.Data()))
	return true, nil
}

// isLost says whether the message that was at a sequence of a town's history is lost. An older one of the
// town still has to be kept then: a history that is full gives up its oldest messages while it is read.
func (d *fsckEvents) isLost(ctx context.Context, subject string, seq uint64) (bool, error) {
	if town, seen := d.towns[subject]; seen {
		if town.first > seq {
			return false, nil
		}
		first, err := stored(ctx, d.log, town.first)
		return first != nil, err
	}
	if d.present[subject] {
		return false, nil
	}
	last, err := lastStored(ctx, d.log, subject)
	if err == nil && last != nil {
		d.present[subject] = true
	}
	return last == nil && err == nil, err
}

// ofCommit says whether an event can only stand in the commit of an accepted handoff: its command is begun,
// or its run ends with a result that is accepted.
func ofCommit(got *fsckMessage) bool {
	if got.Headers().Get(kindHeader) != "" {
		return false // somebody else's
	}
	var event struct {
		EventType        runevents.EventType `json:"eventType"`
		StepID           string              `json:"stepId"`
		LogicalAttemptID int64               `json:"logicalAttemptId"`
		Payload          jsontext.Value      `json:"payload"`
	}
	if json.Unmarshal(got.Data(), &event) != nil {
		return false
	}
	switch event.EventType {
	case runevents.StepStarted:
		return event.StepID == stepApply && event.LogicalAttemptID == 1
	case runevents.RunCompleted, runevents.RunFailed:
		status := handoff.Status(payloadText(event.Payload, "status"))
		return status == handoff.Executed || status == handoff.Failed
	}
	return false
}

// logLost says whether a receipt is of a commit that the log has lost, and reports it.
func (d *fsckReceipts) logLost(_ context.Context, got *fsckMessage) (bool, error) {
	town, lost := d.lostCommits[got.at.seq]
	if lost {
		got.town = town
		d.wrong(got, "the log has lost the commit that this receipt is of", "", string(got.Data()))
		d.remove = append(d.remove, got.seq)
	}
	return lost, nil
}
