package plugin_test

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	natsserver "github.com/nats-io/nats-server/v2/server"
	"github.com/nats-io/nats.go"
	"github.com/stretchr/testify/require"

	"worldengine/trace"
	"worldengine/worldengine/internal/core/apply"
	"worldengine/worldengine/internal/core/town"
	"worldengine/worldengine/internal/testkit/natstest"
	"worldengine/worldengine/plugin"
)

// A command has the trace of its handoff. Its answer has the state that the game reported, and the ids.
func TestServe_Command(t *testing.T) {
	t.Parallel()
	e, seen := newEngine(t), make(chan trace.Context, 1)
	e.serve(plugin.Config{Apply: func(_ context.Context, c *apply.Command) (apply.GameAnswer, error) {
		seen <- c.Trace
		return apply.GameAnswer{Status: apply.Applied, Snapshot: []byte("{\n \"day\": 9\n}")}, nil
	}})
	const townID = `a town. "quoted" > *`
	for n, want := range []trace.Context{
		trace.Parse("00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01", "rojo=1"), {},
	} {
		c := command(t, townID, n)
		data, err := c.MarshalWire(time.Now())
		require.NoError(t, err)
		reply, err := e.nc.RequestMsg(&nats.Msg{
			Subject: subjectOf(townID), Header: want.Inject(nil), Data: data}, testTimeout)
		require.NoError(t, err)
		require.Equal(t, want, <-seen)
		done := apply.Done(c)
		done.Snapshot = []byte(`{"day":9}`)
		answer, err := done.MarshalWire()
		require.NoError(t, err)
		require.Equal(t, string(answer), string(reply.Data))
	}
}

// A command of a town with the largest state gets an answer: the command has two states.
func TestServe_LargestTown(t *testing.T) {
	t.Parallel()
	e, g := &engine{t, natstest.Connect(t, func(o *natsserver.Options) { o.MaxPayload = 8 << 20 })}, newGame()
	e.serve(plugin.Config{Apply: g.apply})
	c := command(t, "north", 1)
	c.Snapshot.Projects[0].Name = strings.Repeat("x", town.MaxState-300)
	c.ExpectedSnapshot.Projects[0].Name = c.Snapshot.Projects[0].Name
	require.Less(t, len(town.NewState(c.ExpectedSnapshot).Canonical), town.MaxState)
	require.Equal(t, apply.Applied, e.ask(c).Status)
}

// The commands of a town are applied in the order of their arrival.
func TestServe_OrderOfATown(t *testing.T) {
	t.Parallel()
	e, g := newEngine(t), newGame()
	e.serve(plugin.Config{Apply: g.apply})
	var sent []*request
	want, got := map[string][]string{}, map[string][]string{}
	for n := range 40 {
		townID := string(rune('a' + n%3))
		sent = append(sent, e.send(command(t, townID, n)))
		want[townID] = append(want[townID], fmt.Sprint(townID, " ", n))
	}
	for _, a := range sent {
		require.Equal(t, apply.Applied, a.answer(t).Status)
	}
	for _, done := range g.order {
		got[done[:1]] = append(got[done[:1]], done)
	}
	require.Equal(t, want, got)
}

// A plugin serves its towns alone, each once.
func TestServe_Towns(t *testing.T) {
	t.Parallel()
	e, g := newEngine(t), newGame()
	e.serve(plugin.Config{Apply: g.apply, Towns: []string{"a", "Fort №2", "a"}})
	require.Equal(t, apply.Applied, e.ask(command(t, "a", 1)).Status)
	require.Equal(t, apply.Applied, e.ask(command(t, "Fort №2", 1)).Status)
	_, err := e.send(command(t, "b", 1)).replies.NextMsg(testTimeout)
	require.ErrorIs(t, err, nats.ErrNoResponders)
	require.Equal(t, []string{"a 1", "Fort №2 1"}, g.order)
	require.Equal(t, []string{"worldengine.v1.w.apply.*"}, plugin.Subjects("w"))
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
	nc := natstest.Dial(t, ns.ClientURL(), nats.UserInfo("frontier", "secret"),
		nats.ErrorHandler(func(*nats.Conn, *nats.Subscription, error) {}))
	e := &engine{t, nc}
	config := plugin.Config{Apply: newGame().apply, Memory: plugin.NewVolatileMemory()}
	_, err := plugin.Serve(nc, config)
	require.ErrorIs(t, err, plugin.ErrSubscribe)
	require.ErrorContains(t, err, `"worldengine.v1.main.apply.*"`)
	config.Towns = []string{"mine"}
	e.serve(config)
	require.Equal(t, apply.Applied, e.ask(command(t, "mine", 1)).Status)
}

// mortal is a memory whose disk fails after some records. It may be used by many towns at once.
type mortal struct {
	plugin.Memory
	remaining atomic.Int64
}

func newMortal(m plugin.Memory, records int) *mortal {
	mortal := &mortal{Memory: m}
	mortal.remaining.Store(int64(records))
	return mortal
}

func (m *mortal) Put(r plugin.Record) error {
	for {
		left := m.remaining.Load()
		if left == 0 {
			return errors.New("the disk is gone")
		}
		if m.remaining.CompareAndSwap(left, left-1) {
			return m.Memory.Put(r)
		}
	}
}

// No command is applied twice, and a final answer stays, although the process restarts and its disk
// fails at any moment.
func TestServe_AtMostOnce(t *testing.T) {
	t.Parallel()
	e, g := newEngine(t), newGame()
	path := filepath.Join(t.TempDir(), "memory")
	random := rand.New(rand.NewPCG(1, 2))
	var commands []*apply.Command
	for n := range 12 {
		commands = append(commands, command(t, string(rune('a'+n%3)), n))
	}
	choice := make(chan int, 1)
	do := func(ctx context.Context, c *apply.Command) (apply.GameAnswer, error) {
		switch <-choice {
		case 0:
			return apply.Refuse(c, "LATER", "", true), nil
		case 1:
			return apply.Refuse(c, "NEVER", "", false), nil
		case 2:
			return apply.GameAnswer{}, errors.New("not in the game")
		case 3:
			_, _ = g.apply(ctx, c)
			panic("in the game")
		case 4:
			return apply.Later(c, apply.Busy, 0), nil
		}
		return g.apply(ctx, c)
	}
	said := map[string]apply.GameAnswer{}
	for range 25 {
		file, err := plugin.OpenFile(path, plugin.FileConfig{})
		require.NoError(t, err)
		// Every record of this life, or only the first few of them.
		memory := newMortal(file, random.IntN(30))
		p := e.serve(plugin.Config{Memory: memory, Apply: do, Recover: g.recover})
		for range 10 {
			c := attempt(commands[random.IntN(len(commands))], 1+random.Int64N(3))
			choice <- random.IntN(8)
			got := e.ask(c)
			select {
			case <-choice:
			default:
			}
			require.LessOrEqual(t, g.times(c), 1)
			if got.Status == apply.Applied {
				require.Equal(t, 1, g.times(c))
			}
			before, known := said[c.ApplyID]
			if known {
				require.Equal(t, before, got)
			} else if got.Status == apply.Applied || got.ReasonCode == "NEVER" && memory.remaining.Load() > 0 {
				said[c.ApplyID] = got
			}
		}
		e.close(p)
		require.NoError(t, file.Close())
	}
	require.NotEmpty(t, said)
}

// panicky panics on its first Put.
type panicky struct {
	plugin.Memory
	put atomic.Int64
}

func (m *panicky) Put(r plugin.Record) error {
	if m.put.Add(1) == 1 {
		panic("no memory")
	}
	return m.Memory.Put(r)
}

// A command whose record made the memory panic is begun anew by the next request.
func TestServe_MemoryPanics(t *testing.T) {
	t.Parallel()
	e, g := newEngine(t), newGame()
	memory := &panicky{Memory: plugin.NewVolatileMemory()}
	e.serve(plugin.Config{Memory: memory, Apply: g.apply})
	c := command(t, "north", 1)
	e.send(c)
	require.Eventually(t, func() bool { return e.ask(c).Status == apply.Applied }, testTimeout, time.Millisecond)
	require.Equal(t, 1, g.times(c))
}
