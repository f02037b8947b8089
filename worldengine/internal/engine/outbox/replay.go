package outbox

import (
	"context"
	"fmt"
	"sync"
	"time"

	"github.com/nats-io/nats.go/jetstream"

	"worldengine/worldengine/internal/kit/backoff"
	"worldengine/worldengine/internal/kit/layout"
	"worldengine/worldengine/internal/store/commitlog"
)

// Replay refills the stream from the log, and then removes each given dead letter whose event the
// stream has. It returns the subjects of the removed letters, in the order of the log. A letter
// stays if its event is refused again, or if its log message cannot be read. Consumers get all
// events again, with the same ids; the stream loses events whose log message the log no longer
// keeps. Relays may run meanwhile. ctx bounds the wait for the end of the log. Of config Replay
// needs Conn and World: the stream must exist, and keeps its settings.
func Replay(ctx context.Context, config Config, letters []string) (replayed []string, err error) {
	s, err := New(config)
	if err != nil {
		return nil, err
	}
	s.opened = true
	stream, err := s.refill(ctx)
	if err != nil {
		return nil, err
	}
	deadLetters, err := s.js.Stream(ctx, s.deadLetters.Name)
	if err != nil {
		return nil, fmt.Errorf("outbox: dead letters: %w", err)
	}
	wanted := map[string]bool{}
	for _, letter := range letters {
		wanted[letter] = true
	}
	_, err = commitlog.ScanHeaders(ctx, stream, 0, func(msg *jetstream.RawStreamMsg) error {
		letter := layout.DeadLetterSubject(config.World, s.stream.Name,
			msg.Header.Get(layout.LogSeqHeader), msg.Header.Get(layout.LogPartHeader))
		if !wanted[letter] {
			return nil
		}
		if err := deadLetters.Purge(ctx, jetstream.WithPurgeSubject(letter)); err != nil {
			return fmt.Errorf("outbox: the dead letter %s cannot be removed, though its event is there: %w",
				letter, err)
		}
		replayed = append(replayed, letter)
		return nil
	})
	return replayed, err
}

// refill empties the stream, and returns it when it has all events up to the present end of the log.
func (r *Relay) refill(ctx context.Context) (jetstream.Stream, error) {
	log, err := commitlog.OpenLog(ctx, r.js, r.config.World)
	if err != nil {
		return nil, err
	}
	stream, err := r.js.Stream(ctx, r.stream.Name)
	if err != nil {
		return nil, fmt.Errorf("outbox: stream %s: %w; a server with --bus jetstream makes it",
			r.stream.Name, err)
	}
	// The jump exceeds the number of events in transit, so running relays detect it.
	const jump = 1 << 16
	if err := stream.Purge(ctx, jetstream.WithPurgeSequence(
		stream.CachedInfo().State.LastSeq+jump)); err != nil {
		return nil, fmt.Errorf("outbox: stream %s cannot be emptied: %w", r.stream.Name, err)
	}
	running, stop := context.WithCancel(ctx)
	var done sync.WaitGroup
	done.Go(func() { r.Run(running) })
	defer done.Wait()
	defer stop()
	for end := log.CachedInfo().State.LastSeq; r.Position() < end; {
		if err := backoff.Sleep(ctx, 10*time.Millisecond); err != nil {
			return nil, fmt.Errorf("outbox: stream %s is filled up to log sequence %d of %d: %w",
				r.stream.Name, r.Position(), end, err)
		}
	}
	return stream, nil
}
