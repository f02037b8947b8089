package worldengine

import (
	"context"
	"fmt"
	"strings"

	"github.com/go-json-experiment/json"
	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"worldengine/runevents"
	"worldengine/schemas"
)

// fsckEvents checks the stream of run events: it is the events of the log, in order, once.
type fsckEvents struct {
	fsckDerived
	// front is the place of the first event of a stream that holds as many as it may: what lies before
	// it was discarded, as the oldest are.
	front logPosition
}

// check checks the events of the next message of the log.
func (d *fsckEvents) check(ctx context.Context, m *fsckMessage) error {
	if !d.checked() {
		return nil
	}
	if err := d.pass(ctx); err != nil {
		return err
	}
	derived, err := d.derive(m)
	if err != nil {
		return nil // a finding about the log
	}
	for part, want := range derived {
		if err := d.expect(ctx, m, want, logPosition{m.seq, part}); err != nil || d.stalled {
			return err
		}
	}
	return nil
}

// expect finds the message that has to be next. Where another is, it tells an insertion from an
// omission and from a change, so that one damage is one finding.
func (d *fsckEvents) expect(ctx context.Context, m *fsckMessage, want *nats.Msg, at logPosition) error {
	for {
		if at.before(d.front) {
			d.report.Counts.Expired++
			return nil
		}
		got, err := d.cursor.peek(ctx, 0)
		if got == nil && err == nil {
			got, err = d.await(ctx, m, want, at)
		}
		if got == nil || err != nil {
			return err
		}
		if got.is(want, at) {
			*d.same++
			d.cursor.take()
			return nil
		}
		if got.placed && d.gap.has(got.at.seq) {
			if err := d.outlived(ctx, got); err != nil {
				return err
			}
			d.cursor.take()
			continue
		}
		later, err := d.ahead(ctx, want, at)
		switch {
		case err != nil:
			return err
		case !later && got.isVersionOf(want, at):
			what, wanted, is := difference(want, got)
			if what == "" {
				what = "the headers do not say the event's place in the log"
			}
			got.town = m.town
			d.wrong(got, what, wanted, is)
			d.cursor.take()
			return nil
		case !later && got.placed && at.before(got.at):
			return d.lacks(ctx, m, want, at)
		}
		d.cursor.take()
		if err := d.stray(ctx, got); err != nil {
			return err
		}
	}
}

// await waits at the end of the stream for a message. It returns nil once it is said why none comes.
func (d *fsckEvents) await(
	ctx context.Context, m *fsckMessage, want *nats.Msg, at logPosition,
) (*fsckMessage, error) {
	if d.expired(m) {
		d.missing(m, want, "")
		return nil, nil
	}
	if d.ended {
		if gone, err := d.givenUp(ctx, m, want, at); gone || err != nil {
			return nil, err
		}
	}
	got, err := d.wait(ctx)
	if got != nil || err != nil {
		return got, err
	}
	if d.ended, err = d.givenUp(ctx, m, want, at); !d.ended && err == nil {
		d.stall(m, want)
	}
	return nil, err
}

// lacks reports an event that is not there though what comes behind it is.
func (d *fsckEvents) lacks(ctx context.Context, m *fsckMessage, want *nats.Msg, at logPosition) error {
	if err := d.findFront(ctx); err != nil {
		return err
	}
	if at.before(d.front) {
		d.report.Counts.Expired++
		return nil
	}
	if !d.expired(m) {
		if gone, err := d.givenUp(ctx, m, want, at); gone || err != nil {
			return err
		}
	}
	d.missing(m, want, "the event is missing")
	return nil
}

// findFront finds the first event of the stream, if that holds as many as it may.
func (d *fsckEvents) findFront(ctx context.Context) error {
	info, err := d.stream.Info(ctx)
	if err != nil {
		return d.cursor.broken(err)
	}
	held := info.State.LastSeq + 1 - info.State.FirstSeq // with those that were deleted among them
	if limit := info.Config.MaxMsgs; limit < 1 || held < uint64(limit) {
		return nil
	}
	first, err := stored(ctx, d.stream, info.State.FirstSeq)
	if err == nil && first != nil && first.placed {
		d.front = first.at
	}
	return err
}

// isVersionOf says whether the message stands in the place of the one that is wanted, or has its id.
func (m *fsckMessage) isVersionOf(want *nats.Msg, at logPosition) bool {
	if m.placed {
		return m.at == at
	}
	return m.Subject() == want.Subject &&
		m.Headers().Get(jetstream.MsgIDHeader) == want.Header.Get(jetstream.MsgIDHeader)
}

// stray deals with an event that is not where the log has one.
func (d *fsckEvents) stray(ctx context.Context, got *fsckMessage) error {
	if got.placed && got.at.seq <= d.end {
		source, err := stored(ctx, d.log, got.at.seq)
		if err != nil {
			return err
		}
		if source == nil {
			return d.outlived(ctx, got)
		}
		if _, err := d.derive(source); err != nil { // a finding about the log
			d.byItself(got)
			return nil
		}
	}
	d.wrong(got, "the log has no such event here", "", string(got.Data()))
	return nil
}

// finish checks what the stream has beyond the events of the log.
func (d *fsckEvents) finish(ctx context.Context) error {
	if !d.checked() {
		return nil
	}
	return d.rest(ctx, func(got *fsckMessage) error { return d.stray(ctx, got) })
}

// eventAlone says what is wrong with an event that can only be checked by itself.
func eventAlone(m *fsckMessage) string {
	if _, err := schemas.Parse(schemas.RunEventRecord, m.Data(), schemas.Limits{Bytes: len(m.Data()) + 1}); err != nil {
		return err.Error()
	}
	var r runevents.Record
	if err := json.Unmarshal(m.Data(), &r); err != nil {
		return err.Error()
	}
	key := runevents.IdempotencyKey(runevents.KeyFields{
		RunID: r.RunID, StepID: r.StepID, LogicalAttemptID: r.LogicalAttemptID, EventType: r.EventType,
		PlanID: r.PlanID, PlanVersion: r.PlanVersion,
	})
	header := m.Headers()
	switch {
	case key != r.IdempotencyKey:
		return fmt.Sprintf("idempotencyKey %s, not %s", r.IdempotencyKey, key)
	case header.Get(EventTypeHeader) != string(r.EventType):
		return fmt.Sprintf("header %s %s, not %s", EventTypeHeader, header.Get(EventTypeHeader), r.EventType)
	case header.Get(jetstream.MsgIDHeader) != r.EventID:
		return fmt.Sprintf("header %s %s, not %s", jetstream.MsgIDHeader, header.Get(jetstream.MsgIDHeader), r.EventID)
	case !strings.HasSuffix(m.Subject(), "."+r.RunID):
		return "the subject is of another run than " + r.RunID
	}
	return ""
}
