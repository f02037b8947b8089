package bench

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"worldengine/worldengine/wire"
)

// Lag is how far a stream that follows the log was behind it when the last handoff was answered.
type Lag struct {
	Stream string `json:"stream"`
	// Behind is how many messages of the log were not yet followed.
	Behind uint64 `json:"behind"`
	// CaughtUpMs is after how many milliseconds all of them were; negative where they were not
	// within the time that was waited.
	CaughtUpMs float64 `json:"caughtUpMs"`

	end uint64 // the last message of the log that leaves something in the stream
}

const (
	lagTimeout = 15 * time.Second
	lagPoll    = 5 * time.Millisecond
)

// lags reads the streams of the world. It fails where the client may not read them.
func lags(ctx context.Context, nc *nats.Conn, world string) ([]Lag, error) {
	ctx, cancel := context.WithTimeout(ctx, lagTimeout)
	defer cancel()
	start := time.Now()
	js, err := jetstream.New(nc)
	if err != nil {
		return nil, fmt.Errorf("bench: JetStream: %w", err)
	}
	log, err := js.Stream(ctx, wire.LogStream(world))
	if err != nil {
		return nil, fmt.Errorf("bench: the log: %w", err)
	}
	// Every message of the log leaves run events, only a commit (and never a refused run) a
	// receipt.
	committed, err := log.GetLastMsgForSubject(ctx, wire.LogSubject(world, ">"))
	if err != nil {
		return nil, fmt.Errorf("bench: the log: %w", err)
	}
	found := []Lag{
		{Stream: wire.ReceiptStream(world), CaughtUpMs: -1, end: committed.Sequence},
		{Stream: wire.EventStream(world), CaughtUpMs: -1, end: log.CachedInfo().State.LastSeq},
	}
	for i := range found {
		position, err := followed(ctx, js, found[i].Stream)
		if err != nil {
			return nil, err
		}
		found[i].Behind = found[i].end - min(found[i].end, position)
	}
	for i := range found {
		if err := found[i].watch(ctx, js, start); err != nil {
			return nil, err
		}
	}
	return found, nil
}

// watch waits until the stream has followed the log, as long as ctx lets it.
func (l *Lag) watch(ctx context.Context, js jetstream.JetStream, start time.Time) error {
	tick := time.NewTicker(lagPoll)
	defer tick.Stop()
	for {
		position, err := followed(ctx, js, l.Stream)
		if ctx.Err() != nil {
			return nil
		}
		if err != nil {
			return err
		}
		if position >= l.end {
			l.CaughtUpMs = milliseconds(time.Since(start))
			return nil
		}
		select {
		case <-tick.C:
		case <-ctx.Done():
			return nil
		}
	}
}

// followed returns up to which sequence of the log a stream is complete, by its last message.
func followed(ctx context.Context, js jetstream.JetStream, name string) (uint64, error) {
	stream, err := js.Stream(ctx, name)
	if err != nil {
		return 0, fmt.Errorf("bench: stream %s: %w", name, err)
	}
	last, err := stream.GetMsg(ctx, stream.CachedInfo().State.LastSeq)
	if errors.Is(err, jetstream.ErrMsgNotFound) {
		return 0, nil
	}
	if err != nil {
		return 0, fmt.Errorf("bench: stream %s: %w", name, err)
	}
	seq, err := strconv.ParseUint(last.Header.Get(wire.LogSeqHeader), 10, 64)
	if err != nil {
		return 0, fmt.Errorf("bench: stream %s: header %s: %w", name, wire.LogSeqHeader, err)
	}
	return seq, nil
}
