package follow

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
)

// derivation is what is derived from one message of the log.
type derivation struct {
	logSeq   uint64
	messages []Message
	done     int // how many of them the derived stream has already
}

// delivery is what is derived from messages of the log that follow each other, on its way.
type delivery struct {
	future   jetstream.PubAckFuture // of the last derived message; nil where there is none
	sequence uint64                 // where the derived stream must have put that one
	logSeq   uint64                 // of the last message of the log
	slots    int                    // of the window that it takes
}

// groupSize and groupSlots bound a delivery: how many messages of the log it is of, and after how
// many slots of the window no more is added.
const (
	groupSize  = 32
	groupSlots = Window / 4
)

// relay publishes what is derived from each message of the log, and does not wait for the acks.
// What is derived from messages that are at hand goes as one delivery, which has one ack.
//
// Where the last try did not move the position, it begins with care and waits for each ack: the
// next message to send may be the one that stops the follower, and it must be known which one is
// refused, and why. It waits no more once the position has moved on over a whole message of the
// log.
func (f *Follower) relay(
	ctx context.Context, source *source, pos position, careful bool,
	sent chan<- delivery, room room,
) error {
	tail := chain{seq: pos.last, replicated: f.config.Derived.CachedInfo().Config.Replicas > 1}
	s := newSending()
	for {
		group, slots, err := f.gather(ctx, source, pos, careful)
		if err != nil {
			return err
		}
		d := delivery{logSeq: group[len(group)-1].logSeq, slots: slots}
		if err := room.enter(ctx, d.slots); err != nil {
			return err
		}
		if careful {
			careful, err = f.deliver(ctx, group[0], &tail)
		} else {
			d.future, err = f.publish(group, &tail, s)
		}
		if err != nil {
			return err
		}
		d.sequence = tail.seq
		select {
		case sent <- d:
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}

// gather waits for the next message of the log, and derives from it and from those that are at hand
// behind it, or with care from it alone. It returns how many slots all that takes. After an error
// nothing of the group is sent: the next try derives it again.
func (f *Follower) gather(
	ctx context.Context, source *source, pos position, careful bool,
) (group []derivation, slots int, err error) {
	for {
		d, err := f.derive(ctx, source, pos)
		if err != nil {
			return nil, 0, err
		}
		group, slots = append(group, d), slots+slotsOf(d.messages[d.done:])
		if careful || len(group) == groupSize || slots >= groupSlots || !source.ready() {
			return group, min(slots, Window), nil
		}
	}
}

// derive derives from the next message of the log.
func (f *Follower) derive(
	ctx context.Context, source *source, pos position,
) (derivation, error) {
	msg, logSeq, err := source.next(ctx)
	if err != nil {
		return derivation{}, err
	}
	derived, err := f.config.Derive(msg)
	if err != nil {
		if err := f.unreadable(ctx, msg, logSeq, err); err != nil {
			return derivation{}, err
		}
		derived = nil
	}
	d := derivation{logSeq: logSeq, messages: derived}
	if logSeq == pos.logSeq {
		d.done = min(pos.parts, len(derived))
	}
	return d, nil
}

// stallWait bounds the wait for room among the messages on their way.
const stallWait = 10 * time.Second

// publish sends what is derived and not yet done, each message guarded by the end of the derived
// stream, and moves that on. Only the last one asks for an ack: where one before it was refused,
// its guard cannot hold either. A message that the stream refuses shows as a lost race; the careful
// try that follows names it. There is no ack to wait for when there is nothing to send.
// s is filled with the others, one after the other.
func (f *Follower) publish(
	group []derivation, tail *chain, s *sending,
) (jetstream.PubAckFuture, error) {
	var last *Message // not sent yet
	var at place
	for _, d := range group {
		for part := d.done; part < len(d.messages); part++ {
			if last != nil {
				*tail = tail.link(s, last, at)
				if err := f.config.JetStream.Conn().PublishMsg(&s.msg); err != nil {
					return nil, notPublished(at.logSeq, &s.msg, err)
				}
			}
			last, at = &d.messages[part], place{d.logSeq, part}
		}
	}
	if last == nil {
		return nil, nil
	}
	own := newSending()
	*tail = tail.link(own, last, at)
	return f.publishAsync(at.logSeq, &own.msg)
}

func (f *Follower) publishAsync(logSeq uint64, m *nats.Msg) (jetstream.PubAckFuture, error) {
	future, err := f.config.JetStream.PublishMsgAsync(m, jetstream.WithStallWait(stallWait))
	if err != nil {
		return nil, notPublished(logSeq, m, err)
	}
	return future, nil
}

func notPublished(logSeq uint64, m *nats.Msg, err error) error {
	return fmt.Errorf("follow: publish %s, derived from log sequence %d: %w",
		m.Subject, logSeq, err)
}

// deliver is publish of one derivation with care: it waits for each message by itself. One that is
// given up is left out, and the next one takes its place in the derived stream. It reports whether
// care is needed on: unless the last of these messages was stored, a follower that restarts comes
// to them again.
func (f *Follower) deliver(
	ctx context.Context, d derivation, tail *chain,
) (careful bool, err error) {
	careful = true
	for part := d.done; part < len(d.messages); part++ {
		s, at := newSending(), place{d.logSeq, part}
		end := tail.link(s, &d.messages[part], at)
		err := f.send(d.logSeq, &s.msg, end.seq)
		switch {
		case err == nil:
			*tail, careful = end, false
		case IsRefusal(err):
			if err := f.refused(ctx, &s.msg, at, err); err != nil {
				return true, err
			}
			careful = true
		default:
			return true, err
		}
	}
	return careful, nil
}

// send stores one message, which is derived from a message of the log, and has to get the given
// sequence of the derived stream.
func (f *Follower) send(logSeq uint64, m *nats.Msg, sequence uint64) error {
	future, err := f.publishAsync(logSeq, m)
	if err != nil {
		return err
	}
	return delivery{future: future, sequence: sequence}.acknowledged()
}

func (d delivery) acknowledged() error {
	if d.future == nil {
		return nil
	}
	select {
	case ack := <-d.future.Ok():
		if ack.Sequence != d.sequence {
			return errRace
		}
		return nil
	case err := <-d.future.Err():
		if IsWrongLastSequence(err) || isRace(err) {
			return errRace
		}
		return fmt.Errorf("follow: the derived stream refused a message: %w", err)
	}
}

// IsWrongLastSequence reports whether err is JetStream's answer to a guard that did not hold:
// 10071, or 10164 on replicated streams.
func IsWrongLastSequence(err error) bool {
	var api *jetstream.APIError
	return errors.As(err, &api) && (api.ErrorCode == jetstream.JSErrCodeStreamWrongLastSequence ||
		api.ErrorCode == jetstream.JSErrCodeStreamWrongLastSequenceConstant)
}

// isRace reports whether err is JetStream's answer to a chain that another follower broke, or to a
// message of which another one's copy is on its way into a replicated stream at this moment.
func isRace(err error) bool {
	const (
		wrongLastMsgID     = 10070
		duplicateInProcess = 10158
	)
	var api *jetstream.APIError
	return errors.As(err, &api) &&
		(api.ErrorCode == wrongLastMsgID || api.ErrorCode == duplicateInProcess)
}
