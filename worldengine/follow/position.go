package follow

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"time"

	"github.com/nats-io/nats.go/jetstream"

	"worldengine/worldengine/backoff"
	"worldengine/worldengine/wire"
)

// position is where a derived stream stands.
type position struct {
	logSeq uint64 // of the last derived message; 0 for an empty stream
	parts  int    // how many messages derived from logSeq are there
	last   uint64 // the sequence of the derived stream's last message
	// What the last derived message is: its subject and its Nats-Msg-Id.
	subject, id string
}

func (f *Follower) readPosition(ctx context.Context) (position, error) {
	info, err := f.config.Derived.Info(ctx)
	if errors.Is(err, jetstream.ErrStreamNotFound) && f.config.Recreate != nil {
		f.config.Logger.Warn("the derived stream is gone and is made again",
			"after", f.config.RecreateAfter)
		f.lose()
		_ = backoff.Sleep(ctx, f.config.RecreateAfter)
		var again jetstream.Stream
		if again, err = f.config.JetStream.CreateOrUpdateStream(ctx,
			*f.config.Recreate); err == nil {
			f.config.Derived = again
			info, err = again.Info(ctx)
		}
	}
	if err != nil {
		return position{}, fmt.Errorf("follow: state of the derived stream: %w", err)
	}
	pos := position{last: info.State.LastSeq}
	// The last message has the position, unless another writer than a follower made it: then the
	// last one of a follower.
	for seq := info.State.LastSeq; seq >= info.State.FirstSeq && seq > 0 &&
		info.State.Msgs > 0; seq-- {
		msg, err := f.config.Derived.GetMsg(ctx, seq)
		if errors.Is(err, jetstream.ErrMsgNotFound) {
			continue // expired or removed
		}
		if err != nil {
			return position{}, fmt.Errorf("follow: last derived message: %w", err)
		}
		if pos.of(msg) {
			return pos, nil
		}
		f.config.Logger.Error("a message of the derived stream is not from a follower",
			"subject", msg.Subject, "sequence", seq)
	}
	return pos, nil
}

// of reads the position from a derived message, and reports whether it is one.
func (p *position) of(msg *jetstream.RawStreamMsg) bool {
	part, partErr := strconv.Atoi(msg.Header.Get(wire.LogPartHeader))
	logSeq, seqErr := strconv.ParseUint(msg.Header.Get(wire.LogSeqHeader), 10, 64)
	if partErr != nil || seqErr != nil {
		return false
	}
	p.logSeq, p.parts = logSeq, part+1
	p.subject, p.id = msg.Subject, msg.Header.Get(jetstream.MsgIDHeader)
	return true
}

// start returns where in the log to begin: at the last followed message, which may be followed in
// part only.
func (f *Follower) start(pos position) jetstream.OrderedConsumerConfig {
	config := jetstream.OrderedConsumerConfig{InactiveThreshold: inactiveThreshold}
	switch {
	case pos.logSeq > 0:
		config.DeliverPolicy = jetstream.DeliverByStartSequencePolicy
		config.OptStartSeq = pos.logSeq
	case f.config.Retention > 0:
		from := time.Now().Add(-f.config.Retention)
		config.DeliverPolicy = jetstream.DeliverByStartTimePolicy
		config.OptStartTime = &from
	}
	return config
}

// Release deletes a consumer that was made to read a stream once, which its Stop does not.
func Release(stream jetstream.Stream, consumer jetstream.Consumer) {
	ctx, cancel := context.WithTimeout(context.Background(), 2*time.Second)
	defer cancel()
	if info := consumer.CachedInfo(); info != nil {
		_ = stream.DeleteConsumer(ctx, info.Name) // else the server does, after inactiveThreshold
	}
}
