package bus

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"strconv"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"worldengine/worldengine/internal/kit/layout"
	"worldengine/worldengine/internal/store/commitlog"
)

// window and windowBytes bound the published events without an ack. readAhead and readBytes bound
// the requested messages of the log that are not read yet: NATS closes a connection for which it
// has to buffer too much. NATS delivers no message larger than that bound, so run raises it if the
// server accepts larger messages.
const (
	window      = 2048
	windowBytes = 8 << 20
	readAhead   = 512
	readBytes   = 16 << 20
)

const (
	// inactive is how long NATS keeps the consumer of a killed sink.
	inactive = 5 * time.Second
	// flush is the longest wait for the next message of a window; pauses.idle is for the first one.
	flush = time.Millisecond
	// identifiedFor is how long the log counts as the one that is read. It is shorter than the lease of a
	// suspended writer, without which no other server removes the world and makes it anew.
	identifiedFor = time.Second
)

// relay is one try of a sink, from its position to the first error.
type relay struct {
	*Sink
	stream, log jetstream.Stream
	began       position
	end         position // the stream's end once the events in transit are stored
	count       uint64   // messages of the log that were read
	logSeq      uint64   // of the last one
	sent        []delivery
	bytes       int       // of sent
	identified  time.Time // when the log was last found to be the one that is read
}

// delivery is an event in transit, and the sequence that the stream must give to it.
type delivery struct {
	future jetstream.PubAckFuture
	at     place
	seq    uint64
}

// run publishes the events of the log in windows: the next window begins when all events of the one
// before are stored. It ends with the first error, or with ctx.
func (r *relay) run(ctx context.Context) error {
	// An ordered consumer would silently go on if another log replaced this one.
	consumer, err := r.log.CreateConsumer(ctx, r.consumer())
	if err != nil {
		return fmt.Errorf("bus: consumer of the log: %w", err)
	}
	defer commitlog.Release(r.log, consumer)
	pull := max(readBytes, 2*int(r.config.Conn.MaxPayload()))
	messages, err := consumer.Messages(jetstream.PullMaxMessagesWithBytesLimit(readAhead, pull),
		jetstream.PullHeartbeat(commitlog.Heartbeat))
	if err != nil {
		return fmt.Errorf("bus: messages of the log: %w", err)
	}
	defer messages.Stop()
	defer context.AfterFunc(ctx, messages.Stop)()
	r.logSeq = consumer.CachedInfo().Delivered.Stream // earlier events are published, or expired
	r.position.Store(r.logSeq)
	for looked := time.Now(); ; {
		msg, err := r.next(messages)
		if err != nil {
			return cmp.Or(ctx.Err(), err)
		}
		if msg != nil {
			err = r.publish(ctx, msg)
		}
		full := len(r.sent) >= window || r.bytes >= windowBytes
		if err == nil && (msg == nil || full || len(r.sent) == 0) {
			err = r.settle(ctx)
		}
		if err == nil && msg == nil && time.Since(looked) >= r.pauses.look {
			looked = time.Now()
			err = r.look(ctx)
		}
		if err != nil {
			return err
		}
	}
}

// consumer configures the reading of the log. It begins with the message of the stream's last
// event, since the stream may lack later events of that message. For an empty stream, it reads
// nothing older than the stream's retention.
func (r *relay) consumer() jetstream.ConsumerConfig {
	config := jetstream.ConsumerConfig{
		AckPolicy: jetstream.AckNonePolicy, MemoryStorage: true, Replicas: 1,
		InactiveThreshold: inactive,
	}
	if first := r.began.at.logSeq; first > 0 {
		config.DeliverPolicy, config.OptStartSeq = jetstream.DeliverByStartSequencePolicy, first
	} else if kept := r.stream.CachedInfo().Config.MaxAge; kept > 0 {
		from := time.Now().Add(-kept)
		config.DeliverPolicy, config.OptStartTime = jetstream.DeliverByStartTimePolicy, &from
	}
	return config
}

// next returns the next message of the log, nil if none came for a while.
func (r *relay) next(messages jetstream.MessagesContext) (jetstream.Msg, error) {
	wait := r.pauses.idle
	if len(r.sent) > 0 {
		wait = flush
	}
	msg, err := messages.Next(jetstream.NextMaxWait(wait))
	if errors.Is(err, nats.ErrTimeout) {
		return nil, nil
	}
	if err != nil {
		err = fmt.Errorf("bus: messages of the log: %w", err)
	}
	return msg, err
}

// publish sends the events of a log message that the stream lacks. It gives up an unreadable message
// at once.
func (r *relay) publish(ctx context.Context, msg jetstream.Msg) error {
	raw, number, err := commitlog.Delivered(msg)
	if err != nil {
		return err
	}
	if r.count++; number != r.count {
		return errGap
	}
	if err := r.requireLog(ctx); err != nil {
		return err
	}
	r.logSeq = raw.Sequence
	events, err := r.events(raw)
	if err != nil {
		return r.giveUp(ctx, letter{
			at: place{logSeq: r.logSeq}, unreadable: true, reason: err,
			msg: &nats.Msg{Subject: raw.Subject, Header: raw.Header, Data: raw.Data},
		})
	}
	for part, event := range events {
		at := place{r.logSeq, part}
		if at.logSeq == r.began.at.logSeq && part <= r.began.at.part || r.givenUp(at) {
			continue
		}
		r.guard(event, at)
		future, err := r.js.PublishMsgAsync(event)
		if err != nil {
			return r.notStored(ctx, event, at, err)
		}
		r.end = position{last: r.end.last + 1, at: at, id: event.Header.Get(jetstream.MsgIDHeader)}
		r.sent, r.bytes = append(r.sent, delivery{future, at, r.end.last}), r.bytes+event.Size()
	}
	return nil
}

// requireLog returns commitlog.ErrOtherLog if the world was removed and made anew: the guards of old events
// may hold in its new stream of events.
func (r *relay) requireLog(ctx context.Context) error {
	now := time.Now()
	if now.Sub(r.identified) < identifiedFor {
		return nil
	}
	r.identified = now
	return commitlog.RequireIdentity(ctx, r.js, r.config.World, r.identity)
}

// guard adds to an event its place in the log, and the last message that the stream must have: by
// sequence and, from the second event of a try on, by Nats-Msg-Id. The sequence alone is not
// enough: if another sink's message takes the place of one of ours, the stream is as long as our
// next message expects.
//
// In a replicated stream the sequence and the duplicate window must suffice. There each replica
// checks the id when it applies a message. A replica that has just caught up does not know the id,
// and stops for good with a critical write error (nats-server 2.15). This is safe because another
// sink's message in that place is the same one, unless one of the two sinks has given an event up.
func (r *relay) guard(event *nats.Msg, at place) {
	event.Header[layout.LogSeqHeader] = []string{strconv.FormatUint(at.logSeq, 10)}
	event.Header[layout.LogPartHeader] = []string{strconv.Itoa(at.part)}
	event.Header[jetstream.ExpectedLastSeqHeader] = []string{strconv.FormatUint(r.end.last, 10)}
	if r.end.last > r.began.last && r.stream.CachedInfo().Config.Replicas <= 1 {
		event.Header[jetstream.ExpectedLastMsgIDHeader] = []string{r.end.id}
	}
}

// settle waits until the events in transit are stored, and moves the position behind them.
func (r *relay) settle(ctx context.Context) error {
	for _, d := range r.sent {
		select {
		case ack := <-d.future.Ok():
			if ack.Sequence != d.seq {
				return errRace // another sink stored the same event
			}
			r.progress = true
		case reason := <-d.future.Err():
			return r.notStored(ctx, d.future.Msg(), d.at, reason)
		case <-ctx.Done():
			return ctx.Err()
		}
	}
	maps.DeleteFunc(r.refusals, func(at place, _ int) bool { return at.logSeq < r.end.at.logSeq })
	r.sent, r.bytes = r.sent[:0], 0
	r.position.Store(r.logSeq)
	return nil
}

// look returns errMoved if the last published event is not the stream's end, and a
// commitlog.ErrLogLost if the log has lost its end.
func (r *relay) look(ctx context.Context) error {
	pos, err := readPosition(ctx, r.stream)
	if err == nil && (pos.last != r.end.last || pos.at != r.end.at) {
		err = errMoved
	}
	if err != nil {
		return err
	}
	return r.checkLog(ctx, r.log, pos)
}

// isRace reports whether another sink was first: its message broke the guard, or a replicated stream
// is just storing its copy of the same message.
func isRace(err error) bool {
	const (
		wrongLastMsgID     = 10070
		duplicateInProcess = 10158
	)
	var api *jetstream.APIError
	return commitlog.IsWrongLastSequence(err) || errors.As(err, &api) &&
		(api.ErrorCode == wrongLastMsgID || api.ErrorCode == duplicateInProcess)
}
