package plugin_test

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"path/filepath"
	"strconv"
	"testing"

	"github.com/stretchr/testify/require"

	"worldengine/worldengine/apply"
	"worldengine/worldengine/plugin"
)

func itoa(n int) string { return strconv.Itoa(n) }

// begun is the memory of a process that ended while it applied c.
func begun(t *testing.T, c *apply.Command) plugin.Memory {
	t.Helper()
	memory := plugin.NewVolatileMemory()
	require.NoError(t, memory.Put(plugin.Record{
		ApplyID: c.ApplyID, TownID: c.TownID, Attempt: c.LogicalAttemptID, At: c.Deadline,
	}))
	return memory
}

func TestRecover_AfterARestart(t *testing.T) {
	t.Parallel()
	for name, inGame := range map[string]bool{"in the game": true, "not in the game": false} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			e, g, c := newEngine(t), newGame(), command(t, "a", 1)
			if inGame {
				_, err := g.apply(t.Context(), c)
				require.NoError(t, err)
			}
			e.serve(plugin.Config{Memory: begun(t, c), Apply: g.apply, Recover: g.recover})
			if !inGame {
				require.Equal(t, "NOT_APPLIED", e.ask(c).ReasonCode)
				require.Equal(t, "NOT_APPLIED", e.ask(c).ReasonCode)
				c = attempt(c, 2)
			}
			require.Equal(t, apply.Done(c), e.ask(c))
			require.Equal(t, 1, g.times(c))
		})
	}
}

func TestApply_InDoubtWithoutRecover(t *testing.T) {
	t.Parallel()
	e, g, c := newEngine(t), newGame(), command(t, "a", 1)
	memory := begun(t, c)
	e.serve(plugin.Config{Memory: memory, Apply: g.apply})
	for n := range int64(2) {
		got := e.ask(attempt(c, n+1))
		require.Equal(t, plugin.ReasonOutcomeUnknown, got.ReasonCode)
		require.False(t, got.Retryable)
	}
	require.Zero(t, g.times(c))
	record, _ := memory.Get(c.ApplyID)
	require.False(t, record.Begun())
}

func TestRecover_NotBegun(t *testing.T) {
	t.Parallel()
	e, g, c := newEngine(t), newGame(), command(t, "a", 1)
	e.serve(plugin.Config{Memory: begun(t, c), Apply: g.apply,
		Recover: func(_ context.Context, c *apply.Command) (apply.Answer, error) {
			return apply.Later(c, apply.Busy, 0), nil
		}})
	require.Equal(t, apply.Busy, e.ask(c).Status)
	require.Equal(t, apply.Applied, e.ask(c).Status, "in the same attempt")
}

// Without a definite answer the command is in doubt: Apply is not called again.
func TestApply_InDoubt(t *testing.T) {
	t.Parallel()
	for name, do := range map[string]plugin.Func{
		"an error": func(context.Context, *apply.Command) (apply.Answer, error) {
			return apply.Answer{}, errors.New("the world is gone")
		},
		"a panic": func(context.Context, *apply.Command) (apply.Answer, error) {
			panic("a defect")
		},
		"no status": func(context.Context, *apply.Command) (apply.Answer, error) {
			return apply.Answer{}, nil
		},
		"a bad reason code": func(_ context.Context, c *apply.Command) (apply.Answer, error) {
			return apply.Refuse(c, "no such code", "", false), nil
		},
		"a snapshot that is none": func(_ context.Context, c *apply.Command) (apply.Answer, error) {
			answer := apply.Done(c)
			answer.Snapshot = []byte(`{"day":`)
			return answer, nil
		},
		"in-progress": func(_ context.Context, c *apply.Command) (apply.Answer, error) {
			return apply.Later(c, apply.InProgress, 0), nil
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			e, g, c := newEngine(t), newGame(), command(t, "a", 1)
			config := plugin.Config{Apply: func(ctx context.Context,
				c *apply.Command) (apply.Answer, error) {
				if _, err := g.apply(ctx, c); err != nil {
					return apply.Answer{}, err
				}
				return do(ctx, c)
			}}
			p := e.serve(config)
			require.Equal(t, plugin.ReasonOutcomeUnknown, e.ask(c).ReasonCode)
			require.Equal(t, plugin.ReasonOutcomeUnknown, e.ask(attempt(c, 2)).ReasonCode)
			require.Equal(t, 1, g.times(c))
			e.close(p)

			config.Recover = g.recover
			e.serve(config)
			c = command(t, "a", 2)
			require.Equal(t, apply.InProgress, e.ask(c).Status)
			require.Equal(t, apply.Done(c), e.ask(c), "the game has it")
			require.Equal(t, 1, g.times(c))
		})
	}
}

func TestRecover_IsAskedAgain(t *testing.T) {
	t.Parallel()
	e, g, c := newEngine(t), newGame(), command(t, "a", 1)
	calls := 0
	e.serve(plugin.Config{Memory: begun(t, c), Apply: g.apply,
		Recover: func(ctx context.Context, c *apply.Command) (apply.Answer, error) {
			switch calls++; calls {
			case 1:
				// This error of Recover does not mean that the command is not in the game.
				return apply.Answer{}, fmt.Errorf("the chunk does not load: %w",
					apply.ErrUnavailable)
			case 2:
				return apply.Later(c, apply.InProgress, 0), nil
			case 3:
				panic("a defect")
			}
			return apply.Done(c), nil
		}})
	for range 3 {
		require.Equal(t, apply.InProgress, e.ask(c).Status)
	}
	require.Equal(t, apply.Applied, e.ask(c).Status)
	require.Equal(t, apply.Applied, e.ask(c).Status)
	require.Equal(t, 4, calls)
	require.Zero(t, g.times(c))
}

func TestApply_Unavailable(t *testing.T) {
	t.Parallel()
	for name, first := range map[string]error{"an answer": nil, "an error": apply.ErrUnavailable} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			e, g, c := newEngine(t), newGame(), command(t, "a", 1)
			calls := 0
			e.serve(plugin.Config{Apply: func(ctx context.Context,
				c *apply.Command) (apply.Answer, error) {
				if calls++; calls == 1 {
					return apply.Later(c, apply.Busy, 0), first
				}
				return g.apply(ctx, c)
			}})
			require.Equal(t, apply.Busy, e.ask(c).Status)
			require.Equal(t, apply.Applied, e.ask(c).Status)
			require.Equal(t, apply.Applied, e.ask(c).Status)
			require.Equal(t, 2, calls)
		})
	}
}

// mortal is a memory whose disk fails after some records.
type mortal struct {
	plugin.Memory
	left int
}

var errGone = errors.New("the disk is gone")

func (m *mortal) Put(r plugin.Record) error {
	if m.left == 0 {
		return errGone
	}
	m.left--
	return m.Memory.Put(r)
}

func TestMemory_CannotBeWritten(t *testing.T) {
	t.Parallel()
	e, g := newEngine(t), newGame()
	memory := &mortal{plugin.NewVolatileMemory(), 1}
	e.serve(plugin.Config{Memory: memory, Apply: g.apply, Recover: g.recover})
	c, d := command(t, "a", 1), command(t, "a", 2)
	for range 2 {
		require.Equal(t, apply.Applied, e.ask(c).Status, "this process knows")
	}
	for range 2 {
		got := e.ask(d)
		require.Equal(t, plugin.ReasonMemoryFailed, got.ReasonCode)
		require.True(t, got.Retryable)
	}
	memory.left = 2
	require.Equal(t, apply.Applied, e.ask(d).Status, "the disk is back")
	require.Equal(t, 1, g.times(c))
	require.Equal(t, 1, g.times(d))
}

// A record that the memory failed to write must not hide a later one.
func TestMemory_DoubtAfterAnUnwrittenRefusal(t *testing.T) {
	t.Parallel()
	e, g, c := newEngine(t), newGame(), command(t, "a", 1)
	memory := &mortal{plugin.NewVolatileMemory(), 1}
	calls := 0
	e.serve(plugin.Config{Memory: memory, Recover: g.recover,
		Apply: func(ctx context.Context, c *apply.Command) (apply.Answer, error) {
			if calls++; calls == 1 {
				return apply.Refuse(c, "LATER", "", true), nil
			}
			_, _ = g.apply(ctx, c)
			return apply.Answer{}, errors.New("in doubt")
		}})
	require.Equal(t, "LATER", e.ask(c).ReasonCode)
	memory.left = 9
	c = attempt(c, 2)
	require.Equal(t, apply.InProgress, e.ask(c).Status)
	require.Equal(t, apply.Done(c), e.ask(c))
	require.Equal(t, 2, calls)
	require.Equal(t, 1, g.times(c))
}

// Whatever is asked, however often the process restarts and wherever its disk fails: nothing is
// applied twice, and a final answer stays.
func TestServe_AtMostOnce(t *testing.T) {
	t.Parallel()
	e, g := newEngine(t), newGame()
	path := filepath.Join(t.TempDir(), "memory")
	random := rand.New(rand.NewPCG(1, 2))
	var commands []*apply.Command
	for n := range 12 {
		commands = append(commands, command(t, string(rune('a'+n%3)), n))
	}
	fate := make(chan int, 1)
	do := func(ctx context.Context, c *apply.Command) (apply.Answer, error) {
		switch <-fate {
		case 0:
			return apply.Refuse(c, "LATER", "", true), nil
		case 1:
			return apply.Refuse(c, "NEVER", "", false), nil
		case 2:
			return apply.Answer{}, errors.New("not in the game")
		case 3:
			_, _ = g.apply(ctx, c)
			panic("in the game")
		case 4:
			return apply.Later(c, apply.Busy, 0), nil
		}
		return g.apply(ctx, c)
	}
	said := map[string]apply.Answer{}
	for range 25 {
		file, err := plugin.OpenFile(path, plugin.FileConfig{})
		require.NoError(t, err)
		// Every record of this life, or only the first few of them.
		memory := &mortal{file, random.IntN(30)}
		p := e.serve(plugin.Config{Memory: memory, Apply: do, Recover: g.recover})
		for range 10 {
			c := attempt(commands[random.IntN(len(commands))], 1+random.Int64N(3))
			fate <- random.IntN(8)
			got := e.ask(c)
			select {
			case <-fate:
			default:
			}
			require.LessOrEqual(t, g.times(c), 1)
			require.Equal(t, got.Status == apply.Applied, got.Status == apply.Applied &&
				g.times(c) == 1)
			before, known := said[c.ApplyID]
			if known {
				require.Equal(t, before, got)
			} else if got.Status == apply.Applied || got.ReasonCode == "NEVER" && memory.left > 0 {
				said[c.ApplyID] = got
			}
		}
		e.close(p)
		require.NoError(t, file.Close())
	}
	require.NotEmpty(t, said)
}
