package outbox

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
	// consumerTTL is how long NATS keeps the consumer of a killed relay.
	consumerTTL = 5 * time.Second
	// flushTimeout is the longest wait for the next message of a window; pauses.idle is for the first one.
	flushTimeout = time.Millisecond
	// identityAge is how long the log counts as the one that is read. It is shorter than the lease of a
	// suspended writer, without which no other server removes the world and makes it anew.
	identityAge = time.Second
)

// session is one try of a relay, from its position to the first error.
type session struct {
	*Relay
	stream, log jetstream.Stream
	start       streamEnd
	end         streamEnd // the stream's end once the events in transit are stored
	count       uint64    // messages of the log that were read
	logSeq      uint64    // of the last one
	sent        []inFlight
	bytes       int       // of sent
	identified  time.Time // when the log was last found to be the one that is read
}

// inFlight is an event in transit, and the sequence that the stream must give to it.
type inFlight struct {
	future jetstream.PubAckFuture
	at     logPosition
	seq    uint64
}

// run publishes the events of the log in windows: the next window begins when all events of the one
// before are stored. It ends with the first error, or with ctx.
func (s *session) run(ctx context.Context) error {
	// An ordered consumer would silently go on if another log replaced this one.
	consumer, err := s.log.CreateConsumer(ctx, s.consumer())
	if err != nil {
		return fmt.Errorf("outbox: consumer of the log: %w", err)
	}
	defer commitlog.DeleteConsumer(s.log, consumer)
	pull := max(readBytes, 2*int(s.config.Conn.MaxPayload()))
	messages, err := consumer.Messages(jetstream.PullMaxMessagesWithBytesLimit(readAhead, pull),
		jetstream.PullHeartbeat(commitlog.HeartbeatInterval))
	if err != nil {
		return fmt.Errorf("outbox: messages of the log: %w", err)
	}
	defer messages.Stop()
	defer context.AfterFunc(ctx, messages.Stop)()
	s.logSeq = consumer.CachedInfo().Delivered.Stream // earlier events are published, or expired
	s.position.Store(s.logSeq)
	for looked := time.Now(); ; {
		msg, err := s.next(messages)
		if err != nil {
			return cmp.Or(ctx.Err(), err)
		}
		if msg != nil {
			err = s.publish(ctx, msg)
		}
		full := len(s.sent) >= window || s.bytes >= windowBytes
		if err == nil && (msg == nil || full || len(s.sent) == 0) {
			err = s.awaitAcks(ctx)
		}
		if err == nil && msg == nil && time.Since(looked) >= s.pauses.check {
			looked = time.Now()
			err = s.checkStream(ctx)
		}
		if err != nil {
			return err
		}
	}
}

// consumer configures the reading of the log. It begins with the message of the stream's last
// event, since the stream may lack later events of that message. For an empty stream, it reads
// nothing older than the stream's retention.
func (s *session) consumer() jetstream.ConsumerConfig {
	config := jetstream.ConsumerConfig{
		AckPolicy: jetstream.AckNonePolicy, MemoryStorage: true, Replicas: 1,
		InactiveThreshold: consumerTTL,
	}
	if first := s.start.at.logSeq; first > 0 {
		config.DeliverPolicy, config.OptStartSeq = jetstream.DeliverByStartSequencePolicy, first
	} else if kept := s.stream.CachedInfo().Config.MaxAge; kept > 0 {
		from := time.Now().Add(-kept)
		config.DeliverPolicy, config.OptStartTime = jetstream.DeliverByStartTimePolicy, &from
	}
	return config
}

// next returns the next message of the log, nil if none came for a while.
func (s *session) next(messages jetstream.MessagesContext) (jetstream.Msg, error) {
	wait := s.pauses.idle
	if len(s.sent) > 0 {
		wait = flushTimeout
	}
	msg, err := messages.Next(jetstream.NextMaxWait(wait))
	if errors.Is(err, nats.ErrTimeout) {
		return nil, nil
	}
	if err != nil {
		err = fmt.Errorf("outbox: messages of the log: %w", err)
	}
	return msg, err
}

// publish sends the events of a log message that the stream lacks. It gives up an unreadable message
// at once.
func (s *session) publish(ctx context.Context, msg jetstream.Msg) error {
	raw, number, err := commitlog.RawMessage(msg)
	if err != nil {
		return err
	}
	if s.count++; number != s.count {
		return errGap
	}
	if err := s.requireLog(ctx); err != nil {
		return err
	}
	s.logSeq = raw.Sequence
	events, err := s.events(raw)
	if err != nil {
		return s.giveUp(ctx, deadLetter{
			at: logPosition{logSeq: s.logSeq}, unreadable: true, reason: err,
			msg: &nats.Msg{Subject: raw.Subject, Header: raw.Header, Data: raw.Data},
		})
	}
	for part, event := range events {
		at := logPosition{s.logSeq, part}
		if at.logSeq == s.start.at.logSeq && part <= s.start.at.part || s.givenUp(at) {
			continue
		}
		s.setGuard(event, at)
		future, err := s.js.PublishMsgAsync(event)
		if err != nil {
			return s.notStored(ctx, event, at, err)
		}
		s.end = streamEnd{last: s.end.last + 1, at: at, id: event.Header.Get(jetstream.MsgIDHeader)}
		s.sent, s.bytes = append(s.sent, inFlight{future, at, s.end.last}), s.bytes+event.Size()
	}
	return nil
}

// requireLog returns commitlog.ErrOtherLog if the world was removed and made anew: the guards of old events
// may hold in its new stream of events.
func (s *session) requireLog(ctx context.Context) error {
	now := time.Now()
	if now.Sub(s.identified) < identityAge {
		return nil
	}
	s.identified = now
	return commitlog.RequireIdentity(ctx, s.js, s.config.World, s.identity)
}

// setGuard adds to an event its place in the log, and the last message that the stream must have: by
// sequence and, from the second event of a try on, by Nats-Msg-Id. The sequence alone is not
// enough: if another relay's message takes the place of one of ours, the stream is as long as our
// next message expects.
//
// In a replicated stream the sequence and the duplicate window must suffice. There each replica
// checks the id when it applies a message. A replica that has just caught up does not know the id,
// and stops for good with a critical write error (nats-server 2.15). This is safe because another
// relay's message in that place is the same one, unless one of the two relays has given an event up.
func (s *session) setGuard(event *nats.Msg, at logPosition) {
	event.Header[layout.LogSeqHeader] = []string{strconv.FormatUint(at.logSeq, 10)}
	event.Header[layout.LogPartHeader] = []string{strconv.Itoa(at.part)}
	event.Header[jetstream.ExpectedLastSeqHeader] = []string{strconv.FormatUint(s.end.last, 10)}
	if s.end.last > s.start.last && s.stream.CachedInfo().Config.Replicas <= 1 {
		event.Header[jetstream.ExpectedLastMsgIDHeader] = []string{s.end.id}
	}
}

// awaitAcks waits until the events in transit are stored, and moves the position behind them.
func (s *session) awaitAcks(ctx context.Context) error {
	for _, d := range s.sent {
		select {
		case ack := <-d.future.Ok():
			if ack.Sequence != d.seq {
				return errRace // another relay stored the same event
			}
			s.progress = true
		case reason := <-d.future.Err():
			return s.notStored(ctx, d.future.Msg(), d.at, reason)
		case <-ctx.Done():
			return ctx.Err()
		}
	}
	maps.DeleteFunc(s.refusals, func(at logPosition, _ int) bool { return at.logSeq < s.end.at.logSeq })
	s.sent, s.bytes = s.sent[:0], 0
	s.position.Store(s.logSeq)
	return nil
}

// checkStream returns errMoved if the last published event is not the stream's end, and a
// commitlog.ErrLogLost if the log has lost its end.
func (s *session) checkStream(ctx context.Context) error {
	pos, err := readStreamEnd(ctx, s.stream)
	if err == nil && (pos.last != s.end.last || pos.at != s.end.at) {
		err = errMoved
	}
	if err != nil {
		return err
	}
	return s.checkLog(ctx, s.log, pos)
}

// isRace reports whether another relay was first: its message broke the guard, or a replicated stream
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
