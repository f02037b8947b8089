package engine

import (
	"context"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
	"github.com/stretchr/testify/require"

	"worldengine/worldengine/internal/store/commitlog"
)

// silentStore is a log that gives no answer while silent is set.
type silentStore struct {
	commitlog.Store
	silent *atomic.Bool
}

func (s silentStore) Last(ctx context.Context, subject string) (*jetstream.RawStreamMsg, error) {
	if s.silent.Load() {
		<-ctx.Done()
		return nil, ctx.Err()
	}
	return s.Store.Last(ctx, subject)
}

func (s silentStore) Publish(ctx context.Context, msg *nats.Msg) (*jetstream.PubAck, error) {
	if s.silent.Load() {
		<-ctx.Done()
		return nil, ctx.Err()
	}
	return s.Store.Publish(ctx, msg)
}

// newSilentStory returns a story with one worker whose log can fall silent.
func newSilentStory(t *testing.T) (s *story, silent *atomic.Bool) {
	s, silent = newStory(t), new(atomic.Bool)
	log := s.engines[0].log
	log.Store = silentStore{log.Store, silent}
	return s, silent
}

// plan plays inputs of a story, each to its end.
func (s *story) plan(inputs ...string) {
	for _, input := range inputs {
		s.play(strings.Fields(input))
		synctest.Wait()
	}
}

// While the log is silent, the requests behind a command have their turns, and are answered.
func TestSilentLog_RequestsBehindACommand(t *testing.T) {
	t.Parallel()
	for _, way := range []string{"away", "silent"} {
		synctest.Test(t, func(t *testing.T) {
			s, silent := newSilentStory(t)
			s.plan("game "+way, "send a 1", "send b 1", "put 1", "sleep 1s")
			silent.Store(true)
			s.plan("sleep 60s")
			text := s.heard()
			for _, name := range []string{"b", "town 1"} {
				require.Contains(t, text, name+" is answered")
			}
			silent.Store(false)
			s.end()
		})
	}
}

// While the log is silent, the commands of some towns leave the only worker to the other towns.
func TestSilentLog_OtherTowns(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		s, silent := newSilentStory(t)
		s.plan("game away", "send a 1", "send b 2")
		silent.Store(true)
		time.Sleep(time.Second)
		for range 20 {
			asked, turns := time.Now(), make(chan time.Duration, 1)
			require.NoError(t, s.engines[0].queue.RunNext("town 0", func(context.Context) {
				turns <- time.Since(asked)
			}))
			time.Sleep(10 * time.Second)
			require.Len(t, turns, 1, "no turn")
			require.LessOrEqual(t, <-turns, 5*time.Second)
		}
		silent.Store(false)
		s.end()
	})
}

// A dispatcher stops within its time while the log is silent, with commands of several towns in hand.
func TestSilentLog_Stop(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		s, silent := newSilentStory(t)
		e := s.engines[0]
		s.plan("game away", "send a 1", "send b 2")
		silent.Store(true)
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		began := time.Now()
		e.dispatcher.Stop(ctx)
		require.LessOrEqual(t, time.Since(began), 3*time.Second)
		silent.Store(false)
		require.NoError(t, e.queue.Drain(t.Context()))
		s.kill(0)
	})
}
