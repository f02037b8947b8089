package plugin_test

import (
	"context"
	"strings"
	"sync"
	"testing"
	"time"

	natsserver "github.com/nats-io/nats-server/v2/server"
	"github.com/nats-io/nats.go"
	"github.com/stretchr/testify/require"

	"worldengine/trace"
	"worldengine/worldengine/apply"
	"worldengine/worldengine/natstest"
	"worldengine/worldengine/plugin"
	"worldengine/worldengine/wire"
)

// A command is applied once, and each request gets its answer, with the state that it reported.
func TestServe_AppliesOnce(t *testing.T) {
	t.Parallel()
	e, g := newEngine(t), newGame()
	e.serve(plugin.Config{Apply: func(ctx context.Context,
		c *apply.Command) (apply.Answer, error) {
		answer, err := g.apply(ctx, c)
		answer.ApplyID, answer.SchemaVersion = "", "" // are set for it
		answer.Snapshot = []byte("{\n \"day\": 9\n}")
		return answer, err
	}})
	c := command(t, `a town. "quoted" > *`, 1)
	want := apply.Done(c)
	want.Snapshot = []byte(`{"day":9}`)
	for n := range int64(3) {
		require.Equal(t, want, e.ask(attempt(c, n+1)))
	}
	require.Equal(t, 1, g.times(c))
}

// A handoff's trace is in the headers of the request, and in the author's command.
func TestServe_Trace(t *testing.T) {
	t.Parallel()
	e, seen := newEngine(t), make(chan trace.Context, 1)
	e.serve(plugin.Config{Apply: func(_ context.Context, c *apply.Command) (apply.Answer, error) {
		seen <- c.Trace
		return apply.Done(c), nil
	}})
	for n, want := range []trace.Context{
		trace.Parse("00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01", "rojo=1"), {},
	} {
		c := command(t, "t", n)
		data, err := c.MarshalWire(time.Now())
		require.NoError(t, err)
		_, err = e.nc.RequestMsg(&nats.Msg{
			Subject: wire.ApplySubject("main", wire.TownToken("t")),
			Header:  want.Header(nil), Data: data,
		}, soon)
		require.NoError(t, err)
		require.Equal(t, want, <-seen)
	}
}

func TestServe_Refusals(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]struct {
		retryable bool
		asks      []int64 // logical attempts
		calls     int
	}{
		"for good":                             {false, []int64{1, 1, 2, 3}, 1},
		"of one attempt":                       {true, []int64{1, 1, 1}, 1},
		"of each attempt":                      {true, []int64{1, 1, 2, 2, 3}, 3},
		"of an engine that starts over":        {true, []int64{1, 2, 1, 1}, 3},
		"of attempts that were asked together": {true, []int64{2, 1}, 2},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			e, c := newEngine(t), command(t, "a", 1)
			calls := 0
			e.serve(plugin.Config{Apply: func(_ context.Context,
				c *apply.Command) (apply.Answer, error) {
				calls++
				return apply.Refuse(c, "CHUNK_NOT_LOADED", "Nobody is near.", test.retryable), nil
			}})
			for _, n := range test.asks {
				require.Equal(t, apply.Refuse(c, "CHUNK_NOT_LOADED", "Nobody is near.",
					test.retryable),
					e.ask(attempt(c, n)))
			}
			require.Equal(t, test.calls, calls)
		})
	}
}

func TestServe_EveryRequestGetsTheOutcome(t *testing.T) {
	t.Parallel()
	e, g := newEngine(t), newGate()
	e.serve(plugin.Config{Apply: g.apply, RetryAfter: 70 * time.Millisecond})
	c := command(t, "a", 1)
	first := e.send(c)
	g.begun(t)
	second := e.send(c)
	require.Equal(t, apply.Later(c, apply.InProgress, 70*time.Millisecond), second.answer())
	third := e.send(attempt(c, 2))
	require.Equal(t, apply.InProgress, third.answer().Status)
	first.none()
	g.end(t, apply.Done(c))
	for _, a := range []*asked{first, second, third} {
		require.Equal(t, apply.Done(c), a.answer())
	}
}

func TestServe_RetryableRefusal(t *testing.T) {
	t.Parallel()
	e, g := newEngine(t), newGate()
	e.serve(plugin.Config{Apply: g.apply})
	c := command(t, "a", 1)
	first := e.send(c)
	g.begun(t)
	second := e.send(attempt(c, 2))
	require.Equal(t, apply.InProgress, second.answer().Status)
	refused := apply.Refuse(c, "LATER", "", true)
	g.end(t, refused)
	require.Equal(t, refused, first.answer())
	again := e.send(attempt(c, 2))
	require.Equal(t, int64(2), (g.begun(t)).LogicalAttemptID)
	g.end(t, apply.Done(c))
	require.Equal(t, apply.Done(c), again.answer())
	second.none()
}

// An engine may have one reply subject for an attempt, or one for all attempts: nobody gets a
// refusal there twice, nor the previous attempt's.
func TestServe_OneReplySubject(t *testing.T) {
	t.Parallel()
	e, g := newEngine(t), newGate()
	e.serve(plugin.Config{Apply: g.apply})
	c := command(t, "a", 1)
	a := e.send(c)
	again := func(n int64) {
		t.Helper()
		data, err := attempt(c, n).MarshalWire(time.Now())
		require.NoError(t, err)
		require.NoError(t, e.nc.PublishRequest("worldengine.v1.main.apply.a",
			a.replies.Subject, data))
		require.Equal(t, apply.InProgress, a.answer().Status)
	}
	g.begun(t)
	again(1)
	again(1)
	refused := apply.Refuse(c, "LATER", "", true)
	g.end(t, refused)
	require.Equal(t, refused, a.answer())

	data, err := attempt(c, 2).MarshalWire(time.Now())
	require.NoError(t, err)
	require.NoError(t, e.nc.PublishRequest("worldengine.v1.main.apply.a", a.replies.Subject, data))
	g.begun(t)
	again(3)
	g.end(t, refused) // of the second attempt, which is over
	last := command(t, "a", 2)
	b := e.send(last)
	g.begun(t)
	g.end(t, apply.Done(last))
	require.Equal(t, apply.Applied, b.answer().Status)
	a.none()
}

func TestServe_FullQueue(t *testing.T) {
	t.Parallel()
	e, g := newEngine(t), newGate()
	e.serve(plugin.Config{Apply: g.apply, Queue: 2, RetryAfter: 30 * time.Millisecond})
	running, waiting, left := command(t, "a", 1), command(t, "a", 2), command(t, "b", 3)
	first := e.send(running)
	g.begun(t)
	second := e.send(waiting)
	require.Equal(t, apply.Later(left, apply.Busy, 30*time.Millisecond), e.ask(left))
	again := e.send(waiting)
	require.Equal(t, apply.Busy, again.answer().Status, "it waits")

	g.end(t, apply.Done(running))
	require.Equal(t, apply.Applied, first.answer().Status)
	g.begun(t)
	g.end(t, apply.Done(waiting))
	require.Equal(t, apply.Applied, second.answer().Status)
	require.Equal(t, apply.Applied, again.answer().Status)

	third := e.send(left)
	g.begun(t)
	g.end(t, apply.Done(left))
	require.Equal(t, apply.Applied, third.answer().Status, "what was busy is asked again")
}

// clock is a clock that a test sets.
type clock struct {
	mu  sync.Mutex
	now time.Time
}

func (c *clock) Now() time.Time {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.now
}

func (c *clock) pass(d time.Duration) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.now = c.now.Add(d)
}

func TestServe_Deadline(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]struct {
		clock  time.Duration // how far the plugin's clock is ahead of the engine's
		waited time.Duration // in the queue
		again  time.Duration // when the engine asks once more, in the next attempt; 0 does not
		want   apply.Status
	}{
		"in time":                            {0, 9 * time.Second, 0, apply.Applied},
		"too late":                           {0, 11 * time.Second, 0, apply.Refused},
		"in time, the clock ahead":           {50 * time.Second, 9 * time.Second, 0, apply.Applied},
		"in time, the clock behind":          {-time.Hour, 9 * time.Second, 0, apply.Applied},
		"too late, the clock behind":         {-time.Hour, 11 * time.Second, 0, apply.Refused},
		"in time, but from long ago":         {5 * time.Minute, time.Second, 0, apply.Refused},
		"too late, but in time for the next": {0, 11 * time.Second, 9 * time.Second, apply.Applied},
		"too late for both":                  {0, 21 * time.Second, 9 * time.Second, apply.Refused},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			e, g := newEngine(t), newGate()
			now := &clock{now: time.Now().Add(test.clock)}
			e.serve(plugin.Config{Apply: g.apply, Now: now.Now})
			ahead := command(t, "a", 1)
			ahead.Deadline = ahead.Deadline.Add(max(test.clock, 0))
			first := e.send(ahead)
			before := g.begun(t)
			c := command(t, "a", 2)
			second := e.send(c)
			require.NoError(t, e.nc.Flush())
			require.Equal(t, apply.Busy, e.ask(c).Status, "it has arrived")
			if test.again > 0 {
				now.pass(test.again)
				second = e.send(attempt(c, 2)) // with ten seconds to go, again
				require.Equal(t, apply.Busy, second.answer().Status)
			}
			now.pass(test.waited - test.again)
			g.end(t, apply.Done(before))
			require.Equal(t, apply.Applied, first.answer().Status)
			if test.want == apply.Applied {
				g.begun(t)
				g.end(t, apply.Done(c))
				require.Equal(t, apply.Done(c), second.answer())
				return
			}
			got := second.answer()
			require.Equal(t, plugin.ReasonDeadlinePassed, got.ReasonCode)
			require.True(t, got.Retryable)
		})
	}
}

func TestServe_OrderOfATown(t *testing.T) {
	t.Parallel()
	e, g := newEngine(t), newGame()
	e.serve(plugin.Config{Apply: g.apply})
	var sent []*asked
	want := map[string][]string{}
	for n := range 40 {
		townID := string(rune('a' + n%3))
		sent = append(sent, e.send(command(t, townID, n)))
		want[townID] = append(want[townID], townID+" "+itoa(n))
	}
	for _, a := range sent {
		require.Equal(t, apply.Applied, a.answer().Status)
	}
	got := map[string][]string{}
	for _, done := range g.order {
		got[done[:1]] = append(got[done[:1]], done)
	}
	require.Equal(t, want, got)
}

func TestServe_Concurrency(t *testing.T) {
	t.Parallel()
	e, g := newEngine(t), newGate()
	e.serve(plugin.Config{Apply: g.apply, Concurrency: 2})
	a, b, c := command(t, "a", 1), command(t, "b", 1), command(t, "c", 1)
	sent := []*asked{e.send(a), e.send(b), e.send(c)}
	first, second := g.begun(t), g.begun(t)
	require.NotEqual(t, first.TownID, second.TownID, "two at once")
	require.NoError(t, e.nc.Flush())
	select {
	case <-g.entered:
		t.Fatal("three at once")
	default:
	}
	// Any of the two waiting may take any answer: their ids are set for them.
	g.end(t, apply.Done(a))
	g.begun(t)
	g.end(t, apply.Done(a))
	g.end(t, apply.Done(a))
	for _, s := range sent {
		require.Equal(t, apply.Applied, s.answer().Status)
	}
}

func TestServe_Towns(t *testing.T) {
	t.Parallel()
	e, g := newEngine(t), newGame()
	e.serve(plugin.Config{Apply: g.apply, Towns: []string{"a", "Fort №2", "a"}})
	require.Equal(t, apply.Applied, e.ask(command(t, "a", 1)).Status)
	require.Equal(t, apply.Applied, e.ask(command(t, "Fort №2", 1)).Status)
	_, err := e.send(command(t, "b", 1)).replies.NextMsg(soon)
	require.ErrorIs(t, err, nats.ErrNoResponders)
	require.Equal(t, []string{"a 1", "Fort №2 1"}, g.order,
		"a town that is given twice is served once")
	require.Equal(t, []string{"worldengine.v1.w.apply.*"}, plugin.Subjects("w"))
}

func TestServe_NoCommand(t *testing.T) {
	t.Parallel()
	e, g := newEngine(t), newGame()
	e.serve(plugin.Config{Apply: g.apply})
	c := command(t, "a", 1)
	data, err := c.MarshalWire(time.Now())
	require.NoError(t, err)
	const subject = "worldengine.v1.main.apply.a"
	require.NoError(t, e.nc.Publish(subject, data), "nobody asks for an answer")
	silent := []*asked{
		e.sendBytes(subject, "", nil), e.sendBytes(subject, "", []byte("{}")),
		e.sendBytes(subject, "", []byte(strings.ReplaceAll(string(data), "command-apply.v1",
			"command-apply.v2"))),
		e.sendBytes("worldengine.v1.main.apply.b", "", data), // the town is another
	}
	after := command(t, "a", 2)
	require.Equal(t, apply.Applied, e.ask(after).Status, "it goes on")
	for _, a := range silent {
		a.none()
	}
	require.Zero(t, g.times(c))
}

func TestClose_Finishes(t *testing.T) {
	t.Parallel()
	e, g := newEngine(t), newGate()
	p := e.serve(plugin.Config{Apply: g.apply})
	a, b := command(t, "a", 1), command(t, "a", 2)
	first := e.send(a)
	g.begun(t)
	second := e.send(b)
	require.Equal(t, apply.Busy, e.ask(b).Status, "it has arrived")
	closed := make(chan error)
	go func() { closed <- p.Close(context.Background()) }()
	g.end(t, apply.Done(a))
	g.begun(t)
	g.end(t, apply.Done(b))
	require.NoError(t, <-closed)
	require.Equal(t, apply.Applied, first.answer().Status)
	require.Equal(t, apply.Applied, second.answer().Status)
	_, err := e.send(command(t, "a", 3)).replies.NextMsg(soon)
	require.ErrorIs(t, err, nats.ErrNoResponders)
	require.NoError(t, p.Close(context.Background()), "closing twice is no trouble")
}

func TestClose_ContextEnds(t *testing.T) {
	t.Parallel()
	e, g := newEngine(t), newGate()
	p := e.serve(plugin.Config{Apply: g.apply, Recover: g.apply})
	a, b := command(t, "a", 1), command(t, "a", 2)
	first := e.send(a)
	g.begun(t)
	second := e.send(b)
	require.Equal(t, apply.Busy, e.ask(b).Status, "it has arrived")
	ctx, cancel := context.WithCancel(context.Background())
	cancel()
	err := p.Close(ctx)
	require.ErrorIs(t, err, plugin.ErrUnfinished)
	require.ErrorIs(t, err, context.Canceled)
	require.Equal(t, apply.InProgress, first.answer().Status, "it is in doubt")
	require.Equal(t, apply.Busy, second.answer().Status, "it is not begun")
}

func TestServe_BadConfig(t *testing.T) {
	t.Parallel()
	nc, g := natstest.Connect(t), newGame()
	memory := plugin.NewVolatileMemory()
	for want, config := range map[string]plugin.Config{
		"Apply is missing":       {Memory: memory},
		"OpenFile":               {Apply: g.apply},
		"above 0":                {Apply: g.apply, Memory: memory, Queue: -1},
		"an empty id":            {Apply: g.apply, Memory: memory, Towns: []string{""}},
		"a world's name is 1 to": {Apply: g.apply, Memory: memory, World: "a.b"},
	} {
		_, err := plugin.Serve(nc, config)
		require.ErrorIs(t, err, plugin.ErrConfig)
		require.ErrorContains(t, err, want)
	}
	nc.Close()
	_, err := plugin.Serve(nc, plugin.Config{Apply: g.apply, Memory: memory})
	require.ErrorIs(t, err, plugin.ErrSubscribe)
}

func TestServe_ForbiddenSubscription(t *testing.T) {
	t.Parallel()
	ns := natstest.Start(t, &natsserver.Options{
		Users: []*natsserver.User{{Username: "frontier", Password: "secret",
			Permissions: &natsserver.Permissions{
				Subscribe: &natsserver.SubjectPermission{Allow: []string{"_INBOX.>",
					"worldengine.v1.main.apply.mine"}},
			}}},
	})
	nc, err := nats.Connect(ns.ClientURL(), nats.UserInfo("frontier", "secret"),
		nats.ErrorHandler(func(*nats.Conn, *nats.Subscription, error) {}))
	require.NoError(t, err)
	t.Cleanup(nc.Close)
	e := &engine{t, nc}
	config := plugin.Config{Apply: newGame().apply, Memory: plugin.NewVolatileMemory()}
	_, err = plugin.Serve(nc, config)
	require.ErrorIs(t, err, plugin.ErrSubscribe)
	require.ErrorContains(t, err, `"worldengine.v1.main.apply.*"`)
	config.Towns = []string{"mine"}
	e.serve(config)
	require.Equal(t, apply.Applied, e.ask(command(t, "mine", 1)).Status)
}

// A request may get no answer. The command counts as begun, and Recover is asked at the next
// request; Answered hears of each.
func TestServe_NoAnswer(t *testing.T) {
	t.Parallel()
	e, heard := newEngine(t), make(chan string, 3)
	silent := func(context.Context, *apply.Command) (apply.Answer, error) {
		return apply.Answer{}, plugin.ErrNoAnswer
	}
	e.serve(plugin.Config{
		Apply: silent, Recover: newGame().apply,
		Answered: func(_ *apply.Command, answer *apply.Answer, again bool) {
			switch {
			case answer == nil:
				heard <- "nothing"
			case again:
				heard <- "again " + string(answer.Status)
			default:
				heard <- string(answer.Status)
			}
		},
	})
	c := command(t, "a", 1)
	first := e.send(c)
	require.Equal(t, "nothing", <-heard)
	first.none()
	require.Equal(t, apply.Done(c), e.ask(c))
	require.Equal(t, "applied", <-heard)
	require.Equal(t, apply.Done(c), e.ask(c))
	require.Equal(t, "again applied", <-heard)
}
