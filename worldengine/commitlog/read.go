package commitlog

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"worldengine/worldengine/follow"
	"worldengine/worldengine/wire"
)

// Follower follows the log into a derived stream: see follow.Follower.
type Follower interface {
	Run(ctx context.Context)
	Wait(ctx context.Context, seq uint64) error
	Restart(logEnd uint64)
	Position() uint64
	Lost() error
}

// ackTimeout bounds the wait of a follower for the ack of a message.
const ackTimeout = 10 * time.Second

// NewTail makes what reads the end of a world's log once for the followers of an engine. They get
// what read returns of each message: see follow.TailConfig.
func NewTail(
	ctx context.Context, nc *nats.Conn, world string, read func(jetstream.Msg) jetstream.Msg,
	logger *slog.Logger,
) (*follow.Tail, error) {
	js, err := jetstream.New(nc)
	if err != nil {
		return nil, fmt.Errorf("worldengine: JetStream: %w", err)
	}
	log, err := js.Stream(ctx, wire.LogStream(world))
	if err != nil {
		return nil, fmt.Errorf("worldengine: stream %s: %w", wire.LogStream(world), err)
	}
	return follow.NewTail(follow.TailConfig{JetStream: js, Log: log, Read: read,
		Logger: logger}), nil
}

// NewFollower makes the follower of a world's log into the derived stream that config names.
func NewFollower(
	ctx context.Context, nc *nats.Conn, world string, config follow.Config,
) (*follow.Follower, error) {
	js, err := jetstream.New(nc, jetstream.WithPublishAsyncMaxPending(2048),
		jetstream.WithPublishAsyncTimeout(ackTimeout))
	if err != nil {
		return nil, fmt.Errorf("worldengine: JetStream: %w", err)
	}
	config.JetStream = js
	if config.Log, err = js.Stream(ctx, wire.LogStream(world)); err != nil {
		return nil, fmt.Errorf("worldengine: stream %s: %w", wire.LogStream(world), err)
	}
	if config.Derived, err = js.Stream(ctx, config.Name); err != nil {
		return nil, fmt.Errorf("worldengine: stream %s: %w", config.Name, err)
	}
	return follow.New(config), nil
}

// CatchUpTimeout is how long a reader waits for a follower to catch up with the log before the
// reader concludes that what it looks for does not exist.
const CatchUpTimeout = 2 * time.Second

// IsGone reports whether err means that the stream that was asked does not exist.
func IsGone(err error) bool {
	return errors.Is(err, nats.ErrNoResponders) || errors.Is(err, jetstream.ErrStreamNotFound)
}

// CatchUp waits until f has followed the log to where its end is now.
func CatchUp(ctx context.Context, log *Log, f Follower) error {
	ctx, cancel := context.WithTimeout(ctx, CatchUpTimeout)
	defer cancel()
	end, err := log.End(ctx)
	if err != nil {
		return err
	}
	return f.Wait(ctx, end)
}
