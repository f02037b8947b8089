package worldengine

import (
	"context"
	"errors"
	"log/slog"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/stretchr/testify/require"

	"worldengine/handoff"
	"worldengine/runevents"
	"worldengine/schemas"
	"worldengine/trace"
	"worldengine/worldengine/apply"
	"worldengine/worldengine/commitlog"
	"worldengine/worldengine/commitlog/logtest"
	"worldengine/worldengine/index"
	"worldengine/worldengine/machine"
	"worldengine/worldengine/messages"
	"worldengine/worldengine/natstest"
	"worldengine/worldengine/queue"
)

// A pause of the world that comes while a handoff waits for the index holds it back.
func TestEngine_PauseWhileTheIndexIsAwaited(t *testing.T) {
	t.Parallel()
	l := logtest.New(t)
	conn := logtest.JetStream(l).Conn()
	source := &heldSource{asked: make(chan struct{}), release: make(chan struct{})}
	e, err := OpenDefective(t.Context(), conn, conn, Config{PauseWait: time.Hour,
		Logger: slog.New(slog.DiscardHandler)}, func(e *Engine) {
		source.Source = index.LogSource(e.log)
		e.reindex(source)
	})
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, e.Close(context.Background())) })
	h := talkIn(t, e)
	source.held.Store(true)                                                       // first, since the index reads now and then by itself
	logtest.Commit(t, l, &commitlog.Record{Kind: commitlog.KindPut, TownID: "t"}) // by another
	e.towns.Forget("t")
	reply := queue.NewReply[Answer]()
	d, err := e.newDelivery(h, trace.Context{})
	require.NoError(t, err)
	d.queued = d.queued.Add(operationTimeout) // it waits that long for the index
	require.NoError(t, e.submit(d, reply))
	<-source.asked // some 20 ms after the handoff began to wait
	_, err = e.Signal(t.Context(), Signal{Kind: machine.SignalPause})
	require.NoError(t, err)
	close(source.release)
	require.Eventually(t, func() bool { return has(t, e, runevents.RunIsPaused) }, 30*time.Second,
		10*time.Millisecond)
	require.Empty(t, reply)
	_, err = e.Signal(t.Context(), Signal{Kind: machine.SignalResume})
	require.NoError(t, err)
	_, err = reply.Wait(t.Context())
	require.NoError(t, err)
}

// heldSource is a log that, once held, signals each read and blocks it until its release.
type heldSource struct {
	index.Source
	held           atomic.Bool
	asked, release chan struct{}
	once           sync.Once
}

func (s *heldSource) EachAfter(
	ctx context.Context, seq uint64, visit func(uint64, string, nats.Header) error,
) error {
	if s.held.Load() {
		s.once.Do(func() { close(s.asked) })
		<-s.release
	}
	return s.Source.EachAfter(ctx, seq, visit)
}

// has reports whether town "t" has a run with a status.
func has(t *testing.T, e *Engine, status runevents.RunStatus) bool {
	page, err := e.Runs().List(t.Context(), index.Filter{Towns: []string{"t"}}, 0, 10)
	return err == nil && slices.ContainsFunc(page.Runs,
		func(r messages.RunRow) bool { return r.Status == status })
}

// stuckConsole is a console that does not answer before its release, whatever its deadline is.
type stuckConsole struct{ asked, release chan struct{} }

func (s stuckConsole) Apply(
	_ context.Context, _ *apply.Command, begin func() bool,
) (apply.Answer, error) {
	begin()
	s.asked <- struct{}{}
	<-s.release
	return apply.Answer{}, context.DeadlineExceeded
}

// A console's command that a dead server had sent is not repeated in a pause; after the pause it is
// in doubt, and is not sent a second time.
func TestEngine_ConsoleInDoubtAfterAPause(t *testing.T) {
	t.Parallel()
	nc := natstest.Connect(t)
	dying, err := nats.Connect(nc.ConnectedUrl())
	require.NoError(t, err)
	console := stuckConsole{make(chan struct{}, 8), make(chan struct{})}
	config := Config{
		Apply: apply.RCON, RCON: console, Logger: slog.New(slog.DiscardHandler),
		Plugin: apply.Policy{Deadline: 500 * time.Millisecond, Resend: 50 * time.Millisecond},
	}
	first, err := Open(t.Context(), dying, dying, config)
	require.NoError(t, err)
	h := talkIn(t, first)
	require.NoError(t, first.Submit(h, trace.Context{}, queue.NewReply[Answer]()))
	<-console.asked
	_, err = first.Signal(t.Context(), Signal{Kind: machine.SignalPause, TownID: "t"})
	require.NoError(t, err)
	current, err := first.log.Load(t.Context(), "t")
	require.NoError(t, err)
	require.NotNil(t, current.Pending)
	dying.Close() // as by kill -9: nothing of it reaches NATS any more

	next, err := Open(t.Context(), nc, nc, config)
	require.NoError(t, err)
	t.Cleanup(func() { _ = next.Close(context.Background()) })
	pending := func() bool {
		now, err := next.log.Load(t.Context(), "t")
		return err != nil || now.Pending != nil &&
			now.Pending.Run.RunID == current.Pending.Run.RunID
	}
	require.Eventually(t, func() bool {
		return next.games.InProgress("t", h.IdempotencyKey) != nil
	}, 30*time.Second, time.Millisecond)
	require.Never(t, func() bool { return !pending() }, 2*time.Second, 50*time.Millisecond)
	_, err = next.Signal(t.Context(), Signal{Kind: machine.SignalResume, TownID: "t"})
	require.NoError(t, err)
	require.Eventually(t, func() bool { return !pending() }, 30*time.Second, 10*time.Millisecond)
	var answer Answer
	require.Eventually(t, func() bool { // the outcome is in the log before the town is free
		answer, err = next.Execute(t.Context(), h)
		return !errors.Is(err, ErrInProgress)
	}, 30*time.Second, 10*time.Millisecond)
	require.NoError(t, err)
	require.Equal(t, handoff.Duplicate, answer.Result.Status)
	concluded, err := handoff.ParseResult(answer.First.Result, schemas.Limits{})
	require.NoError(t, err)
	require.Equal(t, apply.ReasonRCONInDoubt, concluded.ReasonCode)
	close(console.release)
	over, cancel := context.WithCancel(t.Context())
	cancel()
	_ = first.Close(over)
	require.Empty(t, console.asked)
}

// A pause that has ended is not added to a run a second time.
func TestEngine_PauseThatIsOver(t *testing.T) {
	t.Parallel()
	console := stuckConsole{make(chan struct{}, 8), make(chan struct{})}
	e := openEngine(t, logtest.New(t), func(c *Config) {
		c.Apply, c.RCON, c.DiscardHistory = apply.RCON, console, true
	})
	t.Cleanup(func() { close(console.release) })
	require.NoError(t, e.Submit(talkIn(t, e), trace.Context{}, queue.NewReply[Answer]()))
	<-console.asked
	for _, townID := range []string{"t", ""} {
		before, err := e.log.Load(t.Context(), "t")
		require.NoError(t, err)
		_, err = e.Signal(t.Context(), Signal{Kind: machine.SignalPause, TownID: townID})
		require.NoError(t, err)
		e.games.Hold(t.Context(), "t", before.Pending)
		paused, err := e.log.Load(t.Context(), "t")
		require.NoError(t, err)
		pauses := func() (runevents.RunStatus, int64) {
			tail, err := e.log.Tail(t.Context(), paused.Pending.Run.RunID, paused.Pending.Emitted)
			require.NoError(t, err)
			return tail.Status, tail.Pauses
		}
		status, count := pauses()
		require.Equal(t, runevents.RunIsPaused, status)

		_, err = e.Signal(t.Context(), Signal{Kind: machine.SignalResume, TownID: townID})
		require.NoError(t, err)
		e.games.Hold(t.Context(), "t", before.Pending) // after this the run goes on, whoever told it
		e.games.Hold(t.Context(), "t", paused.Pending)
		status, after := pauses()
		require.Equal(t, runevents.RunRunning, status)
		require.Equal(t, count, after)
	}
}
