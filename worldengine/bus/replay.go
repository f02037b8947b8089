package bus

import (
	"context"
	"fmt"
	"sync"
	"time"

	"github.com/nats-io/nats.go/jetstream"

	"worldengine/worldengine/backoff"
	"worldengine/worldengine/commitlog"
	"worldengine/worldengine/wire"
)

// Replay fills the stream anew from the log, and removes those of the given dead letters whose
// events it holds then. It returns their subjects. Consumers get all events again, with their ids,
// and events whose log message has left its history are gone. Sinks may be running meanwhile. Replay
// waits for as long as ctx: a letter that is refused again stays, and so does one whose event cannot
// be made again.
func Replay(ctx context.Context, config Config, letters []string) ([]string, error) {
	s, err := New(config)
	if err != nil {
		return nil, err
	}
	return s.replay(ctx, letters)
}

func (s *Sink) replay(ctx context.Context, letters []string) (replayed []string, err error) {
	stream, err := s.refill(ctx)
	if err != nil {
		return nil, err
	}
	held := map[string]bool{} // by the subject of the letter that the event would have
	if err := commitlog.Each(ctx, stream, jetstream.ConsumerConfig{},
		func(msg jetstream.Msg, _ uint64) error {
			seq, part := msg.Headers().Get(wire.LogSeqHeader), msg.Headers().Get(wire.LogPartHeader)
			held[wire.DeadLetterSubject(s.config.World, s.stream.Name, seq, part)] = true
			return nil
		}); err != nil {
		return nil, err
	}
	for _, subject := range letters {
		if !held[subject] {
			continue
		}
		if err := s.removeLetter(ctx, subject); err != nil {
			return replayed, err
		}
		replayed = append(replayed, subject)
	}
	return replayed, nil
}

// refill empties the stream and returns it once it holds all up to the present end of the log.
func (s *Sink) refill(ctx context.Context) (jetstream.Stream, error) {
	stream, log, err := s.open(ctx)
	if err != nil {
		return nil, err
	}
	// Running sinks find out by the jump, which exceeds the events that they have on their way.
	const jump = 1 << 16
	if err := stream.Purge(ctx, jetstream.WithPurgeSequence(
		stream.CachedInfo().State.LastSeq+jump)); err != nil {
		return nil, fmt.Errorf("bus: stream %s cannot be emptied: %w", s.stream.Name, err)
	}
	running, stop := context.WithCancel(ctx)
	var done sync.WaitGroup
	done.Go(func() { s.Run(running) })
	defer done.Wait()
	defer stop()
	for end := log.CachedInfo().State.LastSeq; s.Position() < end; {
		if err := backoff.Sleep(ctx, 10*time.Millisecond); err != nil {
			return nil, fmt.Errorf("bus: stream %s is filled up to log sequence %d of %d: %w",
				s.stream.Name, s.Position(), end, err)
		}
	}
	return stream, nil
}

// removeLetter removes a dead letter.
func (s *Sink) removeLetter(ctx context.Context, subject string) error {
	stream, err := s.js.Stream(ctx, s.letters.Stream.Config.Name)
	if err == nil {
		err = stream.Purge(ctx, jetstream.WithPurgeSubject(subject))
	}
	if err != nil {
		return fmt.Errorf("bus: dead letter %s cannot be removed, though its event is there: %w",
			subject, err)
	}
	return nil
}
