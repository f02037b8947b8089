package worldengine

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"strings"

	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"
	"github.com/nats-io/nats.go/jetstream"

	"worldengine/handoff"
	"worldengine/runevents"
)

// A town's history loses nothing but its oldest messages, and never its last one. So a commit of an
// accepted handoff that is not in the log, though an older message of its town is, or none of the town
// at all, fell to damage. Such a commit is known by its run events, which name the town: it is found
// within their retention. Of what else the log has, refusals and events between commits, nobody can say
// so: those stand on other subjects, and expire there.

// fsckFate is what became of a commit that the log does not have.
type fsckFate int

const (
	// fateLeft: it has left its town's history, or nobody can say that it has not.
	fateLeft fsckFate = iota
	// fateDamaged: NATS does not deliver it, but the town's history goes on from it. What was derived
	// from it is all that tells of it, and is kept.
	fateDamaged
	// fateLost: the town's history ends before it, or goes on from before it. The town's state has
	// nothing of it, so what was derived from it is false.
	fateLost
)

// fsckAbsent is a commit that fell to damage, and what is known of its town.
type fsckAbsent struct {
	town string
	fate fsckFate
}

// logLost says whether an event whose log message is not there is of a commit that the log has lost, and
// reports that commit, once. One that is damaged is reported too.
func (d *fsckEvents) logLost(ctx context.Context, got *fsckMessage) (bool, error) {
	if absent, known := d.absentCommits[got.at.seq]; known {
		return absent.fate == fateLost, nil
	}
	if !ofCommit(got) {
		return false, nil
	}
	token := lastToken(got.Subject()[:strings.LastIndexByte(got.Subject(), '.')])
	subject := logSubject(d.world, token)
	fate, err := d.fateOf(ctx, subject, got.at.seq)
	if fate == fateLeft || err != nil {
		return false, err
	}
	got.town = townOfToken(token)
	d.absentCommits[got.at.seq] = fsckAbsent{got.town, fate}
	if fate == fateDamaged {
		d.find(FsckFinding{
			Stream: LogStream(d.world), Sequence: got.at.seq, Subject: subject, Town: got.town,
			What: "the commit was changed on the disk of NATS, which does not deliver it", Got: string(got.Data()),
		})
		return false, nil
	}
	d.wrong(got, "the log has lost the commit that this event is of", "", string(got.Data()))
	return true, nil
}

// fateOf says what became of the message that was at a sequence of a town's history. An older one of the
// town still has to be kept where it fell to damage: a history that is full gives up its oldest messages
// while it is read.
func (d *fsckEvents) fateOf(ctx context.Context, subject string, seq uint64) (fsckFate, error) {
	town, seen := d.towns[subject]
	if !seen {
		return d.fateOfUnseen(ctx, subject)
	}
	if town.first > seq {
		return fateLeft, nil
	}
	first, err := stored(ctx, d.log, town.first)
	if first == nil || err != nil {
		return fateLeft, err
	}
	next, err := nextStored(ctx, d.log, subject, seq+1)
	if err != nil {
		return fateLeft, err
	}
	if next != nil {
		return fateBefore(next, seq), nil
	}
	last, err := unreadableLast(ctx, d.log, subject)
	switch {
	case err != nil:
		return fateLeft, err
	case last == 0:
		return fateLost, nil
	case seq < last:
		return fateDamaged, nil
	}
	return fateLeft, nil // it is the last one, which is found at the end, or one that nobody knows more of
}

// fateOfUnseen is fateOf where no message of the town was read yet.
func (d *fsckEvents) fateOfUnseen(ctx context.Context, subject string) (fsckFate, error) {
	if d.present[subject] {
		return fateLeft, nil
	}
	last, err := d.lastOf(ctx, subject)
	switch {
	case errors.Is(err, errUnreadable), err == nil && last != nil:
		d.present[subject] = true
		return fateLeft, nil
	case err != nil:
		return fateLeft, err
	}
	return fateLost, nil
}

// fateBefore says what became of a message of which the next one of its town is there. That one's guard
// names the message that it was decided on, each message being guarded by the one before it.
func fateBefore(next *fsckMessage, seq uint64) fsckFate {
	guard, err := strconv.ParseUint(next.Headers().Get(jetstream.ExpectedLastSubjSeqHeader), 10, 64)
	if err == nil && guard < seq {
		return fateLost
	}
	return fateDamaged
}

// lastOf returns the last message of a subject of the log, nil where it has none, or errUnreadable.
func (f *fsck) lastOf(ctx context.Context, subject string) (*jetstream.RawStreamMsg, error) {
	msg, err := lastOrUnreadable(ctx, f.log, subject)
	if err != nil && !errors.Is(err, errUnreadable) {
		err = fmt.Errorf("%w: stream %s: %w", ErrLogUnavailable, LogStream(f.world), err)
	}
	return msg, err
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
	absent := d.absentCommits[got.at.seq]
	if absent.fate != fateLost {
		return false, nil
	}
	got.town = absent.town
	d.wrong(got, "the log has lost the commit that this receipt is of", "", string(got.Data()))
	d.remove = append(d.remove, got.seq)
	return true, nil
}
