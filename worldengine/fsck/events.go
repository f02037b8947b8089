package fsck

import (
	"context"
	"fmt"
	"strings"

	"github.com/go-json-experiment/json"
	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"worldengine/runevents"
	"worldengine/schemas"
	"worldengine/worldengine/commitlog"
	"worldengine/worldengine/wire"
)

// eventCheck checks the stream of run events: it is the events of the log, in order, once.
type eventCheck struct {
	derivedCheck
	// front is the place of the first event of a stream that holds as many as it may: NATS has
	// discarded those before it.
	front commitlog.Position
}

// step implements streamRules: the log's order is the stream's, so the expected event is absent
// where one of behind it comes, and it does not.
func (d *eventCheck) step(
	ctx context.Context, got *commitlog.Message, want *expected,
) (step, error) {
	if want.at.Before(d.front) {
		return omission, nil
	}
	later, err := d.ahead(ctx, want)
	switch {
	case later || err != nil:
		return insertion, err
	case isVersion(got, want):
		return change, nil
	case got.Placed && want.at.Before(got.At):
		return omission, nil
	}
	return insertion, nil
}

// passed implements streamRules.
func (d *eventCheck) passed(_ context.Context, want *expected) (bool, error) {
	return want.at.Before(d.front), nil
}

// elsewhere implements streamRules: an event before the front was discarded, and counts as expired.
func (d *eventCheck) elsewhere(ctx context.Context, want *expected) (bool, error) {
	if !want.at.Before(d.front) {
		if err := d.findFront(ctx); err != nil {
			return false, err
		}
	}
	if !want.at.Before(d.front) {
		return false, nil
	}
	d.report.Counts.Expired++
	return true, nil
}

// findFront finds the first event of the stream, if that holds as many as it may.
func (d *eventCheck) findFront(ctx context.Context) error {
	info, err := d.stream.Info(ctx)
	if err != nil {
		return d.cursor.broken(err)
	}
	held := info.State.LastSeq + 1 - info.State.FirstSeq // with those that were deleted among them
	if limit := info.Config.MaxMsgs; limit < 1 || held < uint64(limit) {
		return nil
	}
	first, err := commitlog.Stored(ctx, d.stream, info.State.FirstSeq)
	if err == nil && first != nil && first.Placed {
		d.front, d.frontSeq = first.At, first.Seq
	}
	return err
}

// isVersion reports whether a message stands in the place of the expected one, or has its id.
func isVersion(m *commitlog.Message, want *expected) bool {
	if m.Placed {
		return m.At == want.at
	}
	return m.Subject() == want.Subject &&
		m.Headers().Get(jetstream.MsgIDHeader) == want.Header.Get(jetstream.MsgIDHeader)
}

// reportUnexpected implements streamRules.
func (d *eventCheck) reportUnexpected(got *commitlog.Message, _ []*nats.Msg) {
	d.wrong(got, "the log derives no such event here", "", string(got.Data()))
}

// flaw implements streamRules.
func (d *eventCheck) flaw(m *commitlog.Message) string {
	if _, err := schemas.Parse(schemas.RunEventRecord, m.Data(),
		schemas.Limits{Bytes: len(m.Data()) + 1}); err != nil {
		return err.Error()
	}
	var r runevents.Record
	if err := json.Unmarshal(m.Data(), &r); err != nil {
		return err.Error()
	}
	key := runevents.IdempotencyKey(runevents.KeyFields{
		RunID: r.RunID, StepID: r.StepID, LogicalAttemptID: r.LogicalAttemptID,
		EventType: r.EventType, PlanID: r.PlanID, PlanVersion: r.PlanVersion,
	})
	header := m.Headers()
	switch {
	case key != r.IdempotencyKey:
		return fmt.Sprintf("idempotencyKey %s, not %s", r.IdempotencyKey, key)
	case header.Get(wire.EventTypeHeader) != string(r.EventType):
		return fmt.Sprintf("header %s %s, not %s", wire.EventTypeHeader,
			header.Get(wire.EventTypeHeader), r.EventType)
	case header.Get(jetstream.MsgIDHeader) != r.EventID:
		return fmt.Sprintf("header %s %s, not %s", jetstream.MsgIDHeader,
			header.Get(jetstream.MsgIDHeader), r.EventID)
	case !strings.HasSuffix(m.Subject(), "."+r.RunID):
		return "the subject is of another run than " + r.RunID
	}
	return ""
}
