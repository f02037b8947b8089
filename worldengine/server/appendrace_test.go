package server_test

import (
	"encoding/json"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/nats-io/nats.go/jetstream"
	"github.com/stretchr/testify/require"

	"worldengine/runevents"
	"worldengine/worldengine"
	"worldengine/worldengine/commitlog"
	"worldengine/worldengine/server"
	"worldengine/worldengine/wire"
)

// twoEngines are a server's and one more, on one NATS.
func twoEngines(
	t *testing.T, change ...func(*server.Config),
) (*server.Server, [2]*worldengine.Engine) {
	t.Helper()
	srv := start(t, append(change, open)...)
	return srv, [2]*worldengine.Engine{srv.Engine(), beside(t, srv, change...)}
}

// ledger is what all writers together were answered, by idempotencyKey.
type ledger struct {
	mu     sync.Mutex
	wrote  map[string]map[string]runevents.Write // by eventId
	answer map[string]runevents.Appended
	stored map[string]int // how often an answer was not Idempotent
}

func (l *ledger) take(t *testing.T, writes []runevents.Write, answers []runevents.Appended) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for i, a := range answers {
		key := writes[i].IdempotencyKey
		if l.wrote[key] == nil {
			l.wrote[key] = map[string]runevents.Write{}
		}
		l.wrote[key][writes[i].EventID] = writes[i]
		if !a.Idempotent {
			l.stored[key]++
		}
		a.Idempotent = true
		if before, ok := l.answer[key]; ok && before != a {
			t.Errorf("%s is answered with %+v and %+v", key, before, a)
		}
		l.answer[key] = a
	}
}

// Six writers append the same and different events to the same runs through two engines at once:
// every key is stored once, everybody gets the same metadata for it, and what the bus and
// run.events have is exactly that, in the order of runSeq.
func TestWritersRaceThroughTwoEngines(t *testing.T) {
	t.Parallel()
	srv, engines := twoEngines(t, withBus)
	c := connect(t, srv)
	const runs, writers, shared, own = 3, 6, 20, 10
	l := &ledger{wrote: map[string]map[string]runevents.Write{},
		answer: map[string]runevents.Appended{}, stored: map[string]int{}}
	var group sync.WaitGroup
	var again atomic.Bool // then the first answer to a key may have been lost
	for run := range runs {
		for writer := range writers {
			group.Go(func() {
				g := rand.New(rand.NewPCG(uint64(run), uint64(writer)))
				engine, runID := engines[writer%2], fmt.Sprintf("run-%d", run)
				var todo []runevents.Write
				for i := range shared {
					todo = append(todo, written(runID, "Shared", "", int64(i+1)))
				}
				for i := range own {
					todo = append(todo, written(runID, runevents.StepStarted,
						fmt.Sprintf("writer-%d", writer), int64(i+1)))
				}
				g.Shuffle(len(todo), func(i, j int) { todo[i], todo[j] = todo[j], todo[i] })
				for len(todo) > 0 {
					n := min(1+g.IntN(4), len(todo))
					answers, err := engine.Runs().Append(t.Context(), "t", todo[:n])
					if errors.Is(err, commitlog.ErrLogUnavailable) {
						// as a client does on a busy machine
						again.Store(true)
						continue
					}
					if err != nil {
						t.Error(err)
						return
					}
					l.take(t, todo[:n], answers)
					todo = todo[n:]
				}
			})
		}
	}
	group.Wait()
	require.False(t, t.Failed())
	const each = shared + writers*own
	require.Len(t, l.answer, runs*each)
	for key, n := range l.stored {
		require.Equal(t, 1, n, key)
	}
	if !again.Load() {
		require.Len(t, l.stored, runs*each)
	}

	for runID, records := range c.busOf("t", runs*each) {
		require.Len(t, records, each)
		require.True(t, slices.EqualFunc(c.events(runID), records,
			func(a, b runevents.Record) bool {
				return string(mustJSON(t, a)) == string(mustJSON(t, b))
			}), runID)
		for i, r := range records {
			require.Equal(t, int64(i+1), r.RunSeq)
			a := l.answer[r.IdempotencyKey]
			require.Equal(t, record(l.wrote[r.IdempotencyKey][a.EventID], a), r)
		}
	}
}

// busStream returns the stream of the bus, which a server makes soon after its start.
func busStream(t testing.TB, js jetstream.JetStream) (stream jetstream.Stream) {
	t.Helper()
	require.Eventually(t, func() (there bool) {
		var err error
		stream, err = js.Stream(t.Context(), wire.EventStream("main"))
		return err == nil
	}, 30*time.Second, 10*time.Millisecond)
	return stream
}

// busOf reads the stream of the bus, which must hold n events, all of a town, by run.
func (c *client) busOf(townID string, n int) map[string][]runevents.Record {
	t := c.t
	t.Helper()
	stream := busStream(t, c.streams())
	require.Eventually(t, func() bool {
		info, err := stream.Info(t.Context())
		return err == nil && info.State.Msgs >= uint64(n)
	}, 30*time.Second, 10*time.Millisecond)
	consumer, err := stream.OrderedConsumer(t.Context(), jetstream.OrderedConsumerConfig{})
	require.NoError(t, err)
	require.Equal(t, uint64(n), consumer.CachedInfo().NumPending, "none is there twice")
	messages, err := consumer.Messages()
	require.NoError(t, err)
	defer messages.Stop()
	byRun := map[string][]runevents.Record{}
	for range n {
		msg, err := messages.Next(jetstream.NextMaxWait(30 * time.Second))
		require.NoError(t, err)
		var r runevents.Record
		require.NoError(t, json.Unmarshal(msg.Data(), &r))
		require.Equal(t, wire.EventSubject("main", wire.TownToken(townID), r.RunID), msg.Subject())
		require.Equal(t, r.EventID, msg.Headers().Get(jetstream.MsgIDHeader))
		byRun[r.RunID] = append(byRun[r.RunID], r)
	}
	return byRun
}
