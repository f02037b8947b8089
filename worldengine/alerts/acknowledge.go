package alerts

import (
	"context"
	"errors"
	"fmt"
	"strconv"

	"github.com/go-json-experiment/json"
	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"worldengine/runevents"
	"worldengine/worldengine/commitlog"
	"worldengine/worldengine/messages"
	"worldengine/worldengine/wire"
)

var (
	// ErrUnknownAlert: the stream of alerts has no alert with the sequence, or not any more.
	ErrUnknownAlert = errors.New("alerts: no such alert is kept")
	// ErrUnavailable: the stream of alerts did not answer. Asking again is safe.
	ErrUnavailable = errors.New("alerts: the stream of alerts did not answer")
)

// Acknowledgement is what is stored when an operator acknowledges an alert: who, when and why. It
// stands in the stream of alerts behind the alert, so it is lost no sooner than that.
type Acknowledgement = messages.Acknowledgement

// Acknowledge stores that an operator has dealt with the alert with a sequence, and returns the
// alert. The first acknowledgement of an alert counts: further ones change nothing, and return it.
// It returns ErrUnknownAlert, or ErrUnavailable.
func (a *Alerts) Acknowledge(ctx context.Context, seq uint64, by, reason string) (Stored, error) {
	stream, err := a.stream.JetStream.Stream(ctx, a.stream.Config.Name)
	if errors.Is(err, jetstream.ErrStreamNotFound) {
		return Stored{}, ErrUnknownAlert
	}
	if err != nil {
		return Stored{}, fmt.Errorf("%w: %w", ErrUnavailable, err)
	}
	alert, err := a.stored(ctx, stream, seq)
	if err == nil && alert == nil {
		err = ErrUnknownAlert
	}
	if err != nil {
		return Stored{}, err
	}
	if alert.Acknowledged, err = a.acknowledgement(ctx, stream, seq); err != nil ||
		alert.Acknowledged != nil {
		return *alert, err
	}
	first := Acknowledgement{By: by, At: runevents.Timestamp(a.now()), Reason: reason}
	body, err := json.Marshal(&first)
	if err != nil {
		return Stored{}, fmt.Errorf("alerts: an acknowledgement cannot be written: %w", err)
	}
	err = a.stream.Store(ctx, &nats.Msg{
		Subject: wire.AcknowledgedSubject(a.world, strconv.FormatUint(seq, 10)), Data: body,
		Header: nats.Header{jetstream.ExpectedLastSubjSeqHeader: {"0"}},
	})
	alert.Acknowledged = &first
	if commitlog.IsWrongLastSequence(err) { // another one was faster
		alert.Acknowledged, err = a.acknowledgement(ctx, stream, seq)
		if err == nil && alert.Acknowledged == nil { // and is on its way into a replicated stream
			err = ErrUnavailable
		}
		return *alert, err
	}
	if err != nil {
		return Stored{}, fmt.Errorf("%w: %w", ErrUnavailable, err)
	}
	return *alert, nil
}

// stored returns the alert at a sequence of the stream, nil where there is none: the message is
// gone, is an acknowledgement, or is nothing that an engine wrote.
func (a *Alerts) stored(ctx context.Context, stream jetstream.Stream, seq uint64) (*Stored, error) {
	if seq == 0 {
		return nil, nil
	}
	msg, err := stream.GetMsg(ctx, seq)
	if errors.Is(err, jetstream.ErrMsgNotFound) {
		return nil, nil
	}
	if err != nil {
		return nil, fmt.Errorf("%w: message %d: %w", ErrUnavailable, seq, err)
	}
	return storedOf(msg, a.world), nil
}

// acknowledgement returns the acknowledgement of an alert, nil where there is none.
func (a *Alerts) acknowledgement(
	ctx context.Context, stream jetstream.Stream, seq uint64,
) (*Acknowledgement, error) {
	msg, err := stream.GetLastMsgForSubject(ctx,
		wire.AcknowledgedSubject(a.world, strconv.FormatUint(seq, 10)))
	if errors.Is(err, jetstream.ErrMsgNotFound) {
		return nil, nil
	}
	if err != nil {
		return nil, fmt.Errorf("%w: the acknowledgement of %d: %w", ErrUnavailable, seq, err)
	}
	return acknowledgementOf(msg), nil
}
