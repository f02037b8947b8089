package fsck

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
	"worldengine/worldengine/commitlog"
	"worldengine/worldengine/lifecycle"
	"worldengine/worldengine/wire"
)

// NATS discards only the oldest messages of a town's history, and never its last one. So a commit
// of an accepted handoff that is not in the log fell to damage, if the log has an older message of
// its town, or no message of the town at all. The check knows such a commit by its run events,
// which name the town. It cannot find the loss of refusals and of events between commits: those
// stand on other subjects, and expire there.

// lossKind is why the log does not deliver a commit.
type lossKind int

const (
	// notLost: it has left its town's history, or may have.
	notLost lossKind = iota
	// lossInPlace: NATS does not deliver it, but the town's history goes on from it. A repair keeps
	// its receipt and its events, which are all that is left of it.
	lossInPlace
	// lossOfLast: it is the last message of its town, and NATS does not deliver it.
	lossOfLast
	// lossOfState: the town's history ends before it, or goes on from before it. The town's state
	// is without it, so its receipt and its events are false.
	lossOfState
)

// absentCommit is a commit that fell to damage.
type absentCommit struct {
	town string
	loss lossKind
}

// logLost reports whether an event whose log message is not there is of a commit that the log has
// lost, and reports that commit, once. One that is damaged is reported too.
func (d *eventCheck) logLost(ctx context.Context, got *commitlog.Message) (bool, error) {
	d.evicted.observe(got)
	if absent, known := d.absentCommits[got.At.Seq]; known {
		return absent.loss == lossOfState, nil
	}
	if !ofCommit(got) {
		return false, nil
	}
	token := lastToken(got.Subject()[:strings.LastIndexByte(got.Subject(), '.')])
	subject := wire.LogSubject(d.world, token)
	loss, err := d.lossOf(ctx, subject, got.At.Seq)
	if loss == notLost || err != nil {
		return false, err
	}
	got.Town = townOfToken(token)
	d.absentCommits[got.At.Seq] = absentCommit{got.Town, loss}
	if loss == lossOfLast {
		d.remains[got.At.Seq] = shortened("event " + string(got.Data()))
		return false, nil
	}
	if loss == lossInPlace {
		d.onDisk[subject] = got.At.Seq
		d.find(Finding{
			Stream: wire.LogStream(d.world), Sequence: got.At.Seq, Subject: subject, Town: got.Town,
			What: "the commit was changed on the disk of NATS, which does not deliver it",
			Got:  string(got.Data()),
		})
		return false, nil
	}
	d.wrong(got, "the log has lost the commit of this event", "", string(got.Data()))
	return true, nil
}

// lossOf returns what became of the message that was at a sequence of a town's history. An older
// one of the town still has to be kept where it fell to damage: a history that is full gives up its
// oldest messages while it is read.
func (d *eventCheck) lossOf(ctx context.Context, subject string, seq uint64) (lossKind, error) {
	town, seen := d.towns[subject]
	if !seen {
		return d.lossOfUnseen(ctx, subject)
	}
	if town.first > seq {
		return notLost, nil
	}
	first, err := commitlog.Stored(ctx, d.log, town.first)
	if first == nil || err != nil {
		return notLost, err
	}
	next, err := commitlog.NextStored(ctx, d.log, subject, seq+1)
	if err != nil {
		return notLost, err
	}
	if next != nil {
		if mended, err := d.putAside(ctx, subject, seq); mended || err != nil {
			return lossOfState, err
		}
		return lossBefore(next, seq), nil
	}
	last, err := unreadableLast(ctx, d.log, subject)
	switch {
	case err != nil:
		return notLost, err
	case last == 0:
		return lossOfState, nil
	case seq < last:
		return lossInPlace, nil
	case seq == last:
		return lossOfLast, nil // which is found at the end
	}
	return notLost, nil // it is behind what NATS counts
}

// lossOfUnseen is lossOf where no message of the town was read yet.
func (d *eventCheck) lossOfUnseen(ctx context.Context, subject string) (lossKind, error) {
	if d.present[subject] {
		return notLost, nil
	}
	last, err := d.lastOf(ctx, subject)
	switch {
	case errors.Is(err, commitlog.ErrUnreadable), err == nil && last != nil:
		d.present[subject] = true
		return notLost, nil
	case err != nil:
		return notLost, err
	}
	return lossOfState, nil
}

// lossBefore returns what became of a message whose next one of its town is there. That one's
// guard names the message that it was decided on, each message being guarded by the one before it.
func lossBefore(next *commitlog.Message, seq uint64) lossKind {
	guard, err := strconv.ParseUint(next.Headers().Get(jetstream.ExpectedLastSubjSeqHeader), 10, 64)
	if err == nil && guard < seq {
		return lossOfState
	}
	return lossInPlace
}

// lastOf returns the last message of a subject of the log, nil where it has none, or ErrUnreadable.
func (c *worldCheck) lastOf(ctx context.Context, subject string) (*jetstream.RawStreamMsg, error) {
	msg, err := commitlog.LastOrUnreadable(ctx, c.log, subject)
	if err != nil && !errors.Is(err, commitlog.ErrUnreadable) {
		err = fmt.Errorf("%w: stream %s: %w", commitlog.ErrLogUnavailable, wire.LogStream(c.world),
			err)
	}
	return msg, err
}

// ofCommit reports whether an event can only stand in the commit of an accepted handoff: its
// command is begun, or its run ends with a result that is accepted.
func ofCommit(got *commitlog.Message) bool {
	if got.Headers().Get(wire.KindHeader) != "" {
		return false // another producer's
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
		return event.StepID == lifecycle.StepApply && event.LogicalAttemptID == 1
	case runevents.RunCompleted, runevents.RunFailed:
		status := handoff.Status(payloadText(event.Payload, "status"))
		return status == handoff.Executed || status == handoff.Failed
	}
	return false
}

// logLost reports whether a receipt is of a commit that the log has lost, and reports it.
func (d *receiptCheck) logLost(_ context.Context, got *commitlog.Message) (bool, error) {
	absent := d.absentCommits[got.At.Seq]
	if absent.loss == lossOfLast {
		d.remains[got.At.Seq] = shortened("receipt " + string(got.Data()))
	}
	if absent.loss != lossOfState {
		return false, nil
	}
	got.Town = absent.town
	d.wrong(got, "the log has lost the commit of this receipt", "", string(got.Data()))
	d.remove = append(d.remove, got.Seq)
	return true, nil
}
