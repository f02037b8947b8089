package bus

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"worldengine/worldengine/alerts"
	"worldengine/worldengine/commitlog"
)

// window and windowBytes bound the published events without an ack; readAhead and readBytes bound
// the messages of the log that were requested and not read: NATS closes a connection for which it
// has to buffer too much. It delivers no message larger than readBytes, so that grows with the
// server's largest message.
const (
	window      = 2048
	windowBytes = 8 << 20
	readAhead   = 512
	readBytes   = 16 << 20
)

// heartbeat is the interval at which NATS confirms that it still serves an idle reader; inactive is
// how long it keeps the consumer of a reader that vanished.
const (
	heartbeat = 500 * time.Millisecond
	inactive  = 5 * time.Second
)

// lookPause is the pause between an idle sink's looks at its stream and the log: a stream that was
// deleted or emptied is filled again without a new event.
const lookPause = 5 * time.Second

// relay is one try of a sink, from the position that it read to the first error.
type relay struct {
	*Sink
	stream, log jetstream.Stream
	began       position
	end         chain
	got         uint64 // messages of the log
	// flowing is set once an event was stored and none near it is refused: then only the last event
	// of a log message asks for an ack. If one before it is refused, its guard fails too, like a
	// lost race, and the next try begins with the refused one.
	flowing bool

	sent  []delivery // oldest first
	bytes int        // of sent
}

// delivery is an event in transit, or, without a future, the end of a message of the log.
type delivery struct {
	future jetstream.PubAckFuture
	at     place
	seq    uint64 // the sequence that the stream must give to the event
	bytes  int    // of the event, and of those before it without an ack of their own
}

// run publishes the events of each message of the log and takes the acks in order.
func (r *relay) run(ctx context.Context) error {
	ctx, cancel := context.WithCancelCause(ctx)
	messages, stop, err := r.read(ctx, cancel)
	if err != nil {
		cancel(nil)
		return err
	}
	defer stop() // after cancel, which ends the reading
	defer cancel(nil)
	back := r.config.Conn.StatusChanged(nats.CONNECTED)
	defer r.config.Conn.RemoveStatusListener(back)
	look := time.NewTicker(lookPause)
	defer look.Stop()
	for err == nil {
		in, acked, failed := r.next(messages)
		select {
		case msg := <-in:
			err = r.publish(ctx, msg)
		case ack := <-acked:
			err = r.stored(ack)
		case reason := <-failed:
			err = r.notStored(ctx, r.sent[0].future.Msg(), r.sent[0].at, reason)
		case <-look.C:
			err = r.look(ctx)
		case <-back:
			err = errBack
		case <-ctx.Done():
			err = context.Cause(ctx)
		}
	}
	return err
}

// next moves the position over finished messages of the log, and returns the channels to wait for:
// messages if there is room for more events, and the answer to the oldest event in transit.
func (r *relay) next(
	messages <-chan jetstream.Msg,
) (in <-chan jetstream.Msg, acked <-chan *jetstream.PubAck, failed <-chan error) {
	for len(r.sent) > 0 && r.sent[0].future == nil {
		r.position.Store(r.sent[0].at.logSeq)
		r.sent = r.sent[1:]
	}
	if len(r.sent) < window && r.bytes < windowBytes {
		in = messages
	}
	if len(r.sent) > 0 {
		acked, failed = r.sent[0].future.Ok(), r.sent[0].future.Err()
	}
	return in, acked, failed
}

// read opens the log at the last message that has events in the stream, since others of its events
// may be missing. An empty stream needs nothing older than its retention. An error of the log
// cancels ctx. stop waits until the reading has ended, for which ctx has to be done.
func (r *relay) read(
	ctx context.Context, cancel context.CancelCauseFunc,
) (messages <-chan jetstream.Msg, stop func(), err error) {
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
	// Not an ordered consumer: it would go on by itself in another log in place of this one.
	consumer, err := r.log.CreateConsumer(ctx, config)
	if err != nil {
		return nil, nil, fmt.Errorf("bus: consumer of the log: %w", err)
	}
	r.position.Store(consumer.CachedInfo().Delivered.Stream) // the rest is there, or expired
	pull := max(readBytes, 2*int(r.config.Conn.MaxPayload()))
	out := make(chan jetstream.Msg)
	reading, err := consumer.Consume(func(msg jetstream.Msg) {
		select {
		case out <- msg:
		case <-ctx.Done():
		}
	}, jetstream.PullMaxMessagesWithBytesLimit(readAhead, pull), jetstream.PullHeartbeat(heartbeat),
		jetstream.ConsumeErrHandler(func(_ jetstream.ConsumeContext, err error) {
			cancel(fmt.Errorf("bus: messages of the log: %w", err))
		}))
	if err != nil {
		commitlog.Release(r.log, consumer)
		return nil, nil, fmt.Errorf("bus: messages of the log: %w", err)
	}
	return out, func() { reading.Stop(); <-reading.Closed(); commitlog.Release(r.log, consumer) }, nil
}

// publish sends a log message's events that the stream lacks. An unreadable message is given up at
// once.
func (r *relay) publish(ctx context.Context, msg jetstream.Msg) error {
	meta, err := msg.Metadata()
	if err != nil {
		return fmt.Errorf("bus: a message of the log without metadata: %w", err)
	}
	if r.got++; meta.Sequence.Consumer != r.got {
		return errGap
	}
	logSeq := meta.Sequence.Stream
	events, err := r.events(msg)
	if err != nil {
		if err := r.giveUp(ctx, place{logSeq: logSeq}, alerts.DeadLetter{
			Subject: msg.Subject(), Header: msg.Headers(), Data: msg.Data(),
			Unreadable: true, Reason: err,
		}); err != nil {
			return err
		}
	}
	bytes := 0
	for part, event := range events {
		at := place{logSeq, part}
		if at.logSeq == r.began.at.logSeq && part <= r.began.at.part || r.givenUp(at) {
			continue
		}
		end, own := r.end.link(event, at), !r.flowing || part == len(events)-1
		bytes += event.Size()
		var future jetstream.PubAckFuture
		if own {
			future, err = r.js.PublishMsgAsync(event)
		} else {
			err = r.config.Conn.PublishMsg(event)
		}
		if err != nil {
			return r.notStored(ctx, event, at, err)
		}
		r.end = end
		if own {
			r.sent, r.bytes = append(r.sent, delivery{future, at, end.seq, bytes}), r.bytes+bytes
			bytes = 0
		}
	}
	r.sent = append(r.sent, delivery{at: place{logSeq: logSeq}})
	return nil
}

// stored handles the ack of the oldest event in transit.
func (r *relay) stored(ack *jetstream.PubAck) error {
	oldest := r.sent[0]
	if ack.Sequence != oldest.seq {
		return errRace // a duplicate of another sink's
	}
	r.sent, r.bytes = r.sent[1:], r.bytes-oldest.bytes
	r.progress = true
	r.forgetBefore(oldest.at.logSeq)
	r.flowing = len(r.refusals) == 0
	return nil
}

// look returns errMoved if the stream does not end with the last event that was published, and a
// commitlog.ErrLogLost if the log has lost its end.
func (r *relay) look(ctx context.Context) error {
	if len(r.sent) > 0 {
		return nil
	}
	pos, err := readPosition(ctx, r.stream)
	if err == nil && (pos.last != r.end.seq || pos.at != r.end.at) {
		err = errMoved
	}
	if err != nil {
		return err
	}
	return r.checkLog(ctx, r.log, pos)
}

// isRace reports whether err is JetStream's answer to a guard that another sink broke, or to a
// message whose copy from another sink is just entering a replicated stream.
func isRace(err error) bool {
	const (
		wrongLastMsgID     = 10070
		duplicateInProcess = 10158
	)
	var api *jetstream.APIError
	return commitlog.IsWrongLastSequence(err) || errors.As(err, &api) &&
		(api.ErrorCode == wrongLastMsgID || api.ErrorCode == duplicateInProcess)
}
