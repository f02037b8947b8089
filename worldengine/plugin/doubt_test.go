package plugin_test

import (
	"cmp"
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

// A command that was begun before a restart is asked of Recover, until that has a definite answer;
// without a Recover it is refused for good.
func TestRecover_AfterARestart(t *testing.T) {
	t.Parallel()
	later := func(status apply.Status) plugin.Func {
		return func(_ context.Context, c *apply.Command) (apply.Answer, error) {
			return apply.Later(c, status, 0), nil
		}
	}
	lost := func(context.Context, *apply.Command) (apply.Answer, error) {
		// This error of Recover does not mean that the command is not in the game.
		return apply.Answer{}, fmt.Errorf("the chunk does not load: %w", apply.ErrUnavailable)
	}
	panics := func(context.Context, *apply.Command) (apply.Answer, error) { panic("a defect") }
	for name, test := range map[string]struct {
		inGame   bool
		recovers []plugin.Func // one call each, then the game's
		asks     []int64       // logical attempts
		want     []string      // their answers
		applied  int
	}{
		"in the game": {true, []plugin.Func{}, []int64{1, 1}, []string{"applied", "applied"}, 1},
		"not in the game": {false, []plugin.Func{}, []int64{1, 1, 2},
			[]string{"NOT_APPLIED", "NOT_APPLIED", "applied"}, 1},
		"not begun": {false, []plugin.Func{later(apply.Busy)}, []int64{1, 1},
			[]string{"busy", "applied"}, 1},
		"not known at first": {true, []plugin.Func{lost, later(apply.InProgress), panics},
			[]int64{1, 1, 1, 1, 1},
			[]string{"in-progress", "in-progress", "in-progress", "applied", "applied"}, 1},
		"without a Recover": {false, nil, []int64{1, 2},
			[]string{plugin.ReasonOutcomeUnknown, plugin.ReasonOutcomeUnknown}, 0},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			e, g, c := newEngine(t), newGame(), command(t, "a", 1)
			if test.inGame {
				_, err := g.apply(t.Context(), c)
				require.NoError(t, err)
			}
			memory := begun(t, c)
			config := plugin.Config{Memory: memory, Apply: g.apply}
			if left := test.recovers; left != nil {
				config.Recover = func(ctx context.Context, c *apply.Command) (apply.Answer, error) {
					if len(left) == 0 {
						return g.recover(ctx, c)
					}
					first := left[0]
					left = left[1:]
					return first(ctx, c)
				}
			}
			e.serve(config)
			for i, n := range test.asks {
				got := e.ask(attempt(c, n))
				require.Equal(t, test.want[i], cmp.Or(got.ReasonCode, string(got.Status)), i)
				require.Equal(t, got.ReasonCode == "NOT_APPLIED", got.Retryable)
			}
			require.Equal(t, test.applied, g.times(c))
			record, _ := memory.Get(c.ApplyID)
			require.False(t, record.Begun())
		})
	}
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
