package outbox

import (
	"context"
	"fmt"
	"strconv"

	"github.com/nats-io/nats.go/jetstream"

	"worldengine/worldengine/internal/kit/layout"
	"worldengine/worldengine/internal/kit/phrase"
	"worldengine/worldengine/internal/store/alerts"
	"worldengine/worldengine/internal/store/commitlog"
)

// streamEnd describes the end of the stream of events.
type streamEnd struct {
	last        uint64      // the sequence of the last message, kept or not
	at          logPosition // of the last event that the stream keeps; zero if it keeps none
	subject, id string      // of that event
}

// readStreamEnd returns the position of a stream. It skips messages of other writers, which have no
// place in the log.
func readStreamEnd(ctx context.Context, stream jetstream.Stream) (streamEnd, error) {
	info, err := stream.Info(ctx)
	if err != nil {
		return streamEnd{}, fmt.Errorf("outbox: state of the stream of events: %w", err)
	}
	state := info.State
	pos := streamEnd{last: state.LastSeq}
	for seq := state.LastSeq; state.Msgs > 0 && seq >= max(state.FirstSeq, 1); seq-- {
		msg, err := commitlog.StreamStore{Stream: stream}.At(ctx, seq)
		if err != nil {
			return streamEnd{}, fmt.Errorf("outbox: last event of the stream: %w", err)
		}
		if msg == nil {
			continue // expired or removed
		}
		if at, ok := logPositionOf(msg); ok {
			pos.at, pos.subject, pos.id = at, msg.Subject, msg.Header.Get(jetstream.MsgIDHeader)
			break
		}
	}
	return pos, nil
}

func logPositionOf(msg *jetstream.RawStreamMsg) (logPosition, bool) {
	part, partErr := strconv.Atoi(msg.Header.Get(layout.LogPartHeader))
	logSeq, seqErr := strconv.ParseUint(msg.Header.Get(layout.LogSeqHeader), 10, 64)
	return logPosition{logSeq, part}, partErr == nil && seqErr == nil && logSeq > 0
}

// lostTries is how many tries in a row find the log without its end before an alert is raised: a new
// leader of a replicated log may lag.
const lostTries = 5

// checkLog returns a commitlog.ErrLogLost if the log lacks the message of the stream's last event.
// Then nothing is published until the log is back or the stream is purged, since consumers could not
// tell the events of two logs apart.
func (r *Relay) checkLog(ctx context.Context, log jetstream.Stream, pos streamEnd) error {
	has, err := r.logHas(ctx, log, pos)
	if err != nil {
		return fmt.Errorf("outbox: log sequence %d: %w", pos.at.logSeq, err)
	}
	if has {
		r.lostTries = 0
		return nil
	}
	err = fmt.Errorf("%w: the log does not have sequence %d, of which %s has an event; restore "+
		"the log, or purge the stream, which is filled again from the log",
		commitlog.ErrLogLost, pos.at.logSeq, r.stream.Name)
	r.position.Store(0)
	if r.lostTries++; r.lostTries == lostTries {
		r.config.Logger.Error("LOG_LOST: no run event is published", "error", err)
		r.config.Raise(alerts.LogLost.Alert(alerts.About{},
			"{effect}", "No run event is published", "{error}", phrase.Sentence(err)))
	}
	return err
}

// logHas reports whether the log has, or had, the message of the stream's last event. The log does not
// have it if the log's end, which only grows, is before that message. It does not have it either if
// another message is in that place: then the log lost its end and has grown again. An unreadable
// message proves nothing.
func (r *Relay) logHas(ctx context.Context, log jetstream.Stream, pos streamEnd) (bool, error) {
	info, err := log.Info(ctx)
	if err != nil || pos.at.logSeq == 0 || pos.at.logSeq > info.State.LastSeq {
		return pos.at.logSeq == 0, err
	}
	raw, err := commitlog.StreamStore{Stream: log}.At(ctx, pos.at.logSeq)
	if raw == nil || err != nil {
		return err == nil, err
	}
	events, err := r.events(raw)
	part := pos.at.part
	return err != nil || part < len(events) && events[part].Subject == pos.subject &&
		events[part].Header.Get(jetstream.MsgIDHeader) == pos.id, nil
}
