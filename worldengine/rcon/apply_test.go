package rcon_test

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"

	mc "github.com/Tnze/go-mc/net"
	"github.com/stretchr/testify/require"

	"worldengine/handoff"
	"worldengine/worldengine/apply"
	"worldengine/worldengine/rcon"
)

func TestConsole_CommandsInOrder(t *testing.T) {
	t.Parallel()
	server := &vanilla{answer: func(line string) string { return "Done: " + line }}
	console := open(t, config(listen(t, server.serve),
		"function towns:advance/{argument}", "say The {title} is at {progress} %, on day {day}."))
	for range 3 {
		c := command(t, "wall")
		answer, err := console.Apply(t.Context(), c, begin)
		require.NoError(t, err)
		require.Equal(t, apply.Done(c), answer)
	}
	connections, logins, lines := server.seen()
	require.Equal(t, 1, connections)
	require.Equal(t, 3, logins, "a link of before shows that it still leads to the server")
	require.Len(t, lines, 6)
	require.Equal(t,
		[]string{"function towns:advance/wall", "say The the north wall is at 50 %, on day 4."},
		lines[:2])
}

// The server of go-mc's documentation fails on a second login.
func TestConsole_ServerOfOneLogin(t *testing.T) {
	t.Parallel()
	var mu sync.Mutex
	var lines []string
	console := open(t, config(listen(t, func(conn *mc.RCONConn) {
		if conn.AcceptLogin(password) != nil {
			return
		}
		for {
			line, err := conn.AcceptCmd()
			if err != nil {
				return
			}
			mu.Lock()
			lines = append(lines, line)
			mu.Unlock()
			if conn.RespCmd("ok") != nil {
				return
			}
		}
	}), "say {argument}"))
	for _, id := range []string{"a", "b", "c"} {
		c := command(t, id)
		answer, err := console.Apply(t.Context(), c, begin)
		require.NoError(t, err)
		require.Equal(t, apply.Done(c), answer)
	}
	mu.Lock()
	defer mu.Unlock()
	require.Equal(t, []string{"say a", "say b", "say c"}, lines)
}

// A response is read to its end, however the server splits it, and nothing of it
// is taken for the next one.
func TestConsole_LongResponses(t *testing.T) {
	t.Parallel()
	for name, text := range map[string]string{
		"empty": "", "short": "ok",
		"almost full": strings.Repeat("a", 3999), "full": strings.Repeat("a", 4096),
		"one more": strings.Repeat("a", 4097), "two full ones": strings.Repeat("a", 8192),
		"three bytes a character": strings.Repeat("☃", 4096),
		"and many of them": strings.Repeat("☃",
			20000),
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			server := &vanilla{answer: func(line string) string {
				if line == "short" {
					return "short"
				}
				return text + "$"
			}}
			cfg := config(listen(t, server.serve), "long", "short", "long", "short")
			list := cfg.Commands[handoff.AdvanceProject]
			for i := range list {
				list[i].Expect = "^" + text[:min(len(text), 900)] + `.*\$$`
				if list[i].Run == "short" {
					list[i].Expect = "^short$"
				}
			}
			c := command(t, "wall")
			answer, err := open(t, cfg).Apply(t.Context(), c, begin)
			require.NoError(t, err)
			require.Equal(t, apply.Done(c), answer)
			connections, _, lines := server.seen()
			require.Equal(t, 1, connections)
			require.Equal(t, []string{"long", "short", "long", "short"}, lines)
		})
	}
}

// The old connection is dead, which shows before a command is risked on it.
func TestConsole_RestartedServer(t *testing.T) {
	t.Parallel()
	server := &vanilla{answer: func(string) string { return "ok" }}
	restart, restarted := make(chan struct{}, 1), make(chan struct{}, 1)
	address := listen(t, func(conn *mc.RCONConn) {
		ended := make(chan struct{})
		go func() {
			defer close(ended)
			select {
			case <-restart:
				_ = conn.Close()
				restarted <- struct{}{}
			case <-t.Context().Done():
			}
		}()
		server.serve(conn)
		<-ended
	})
	console := open(t, config(address, "say hello"))
	for range 3 {
		c := command(t, "wall")
		answer, err := console.Apply(t.Context(), c, begin)
		require.NoError(t, err)
		require.Equal(t, apply.Done(c), answer)
		restart <- struct{}{}
		<-restarted
	}
	connections, _, lines := server.seen()
	require.Equal(t, 3, connections)
	require.Len(t, lines, 3, "nothing was sent twice")
}

func TestConsole_OneCommandAtATime(t *testing.T) {
	t.Parallel()
	server := &vanilla{answer: func(string) string { return "ok" }}
	console := open(t, config(listen(t, server.serve), "first {argument}", "second {argument}"))
	var all sync.WaitGroup
	for i := range 20 {
		c := command(t, fmt.Sprint("project-", i))
		all.Go(func() {
			answer, err := console.Apply(t.Context(), c, begin)
			if err != nil || answer.Status != apply.Applied {
				t.Errorf("%v, %v", answer, err)
			}
		})
	}
	all.Wait()
	connections, _, lines := server.seen()
	require.Equal(t, 1, connections)
	require.Len(t, lines, 40)
	for pair := range slices.Chunk(lines, 2) {
		require.Equal(t, strings.Replace(pair[0], "first", "second", 1), pair[1])
	}
}

func TestConsole_TypeWithoutCommands(t *testing.T) {
	t.Parallel()
	console := open(t, config("127.0.0.1:1", "say hello"))
	c := commandOf(t, handoff.TalkToTownsfolk, map[string]string{"talkType": "casual"})
	answer, err := console.Apply(t.Context(), c, begin)
	require.NoError(t, err)
	require.Equal(t, apply.Refuse(c, rcon.ReasonNotConfigured,
		"The console has no commands for TOWNSFOLK_TALK.", false), answer)
}

// An unsafe value of any of the commands is refused before anything is sent.
func TestConsole_UnsafeValue(t *testing.T) {
	t.Parallel()
	server := &vanilla{answer: func(string) string { return "ok" }}
	console := open(t, config(listen(t, server.serve), "say hello", "say {argument}"))
	c := command(t, "wall\nop mallory")
	answer, err := console.Apply(t.Context(), c, begin)
	require.NoError(t, err)
	require.Equal(t, apply.Refused, answer.Status)
	require.Equal(t, rcon.ReasonUnsafeArgument, answer.ReasonCode)
	require.False(t, answer.Retryable)
	require.Contains(t, answer.Message, `{argument} is "wall\nop mallory", which is not`)
	connections, _, _ := server.seen()
	require.Zero(t, connections)
}

// The answer to the first command decides whether anything was done; later, there is no way back.
func TestConsole_Expect(t *testing.T) {
	t.Parallel()
	for failing, sent := range map[string][]string{
		"": {"first", "second", "third"}, "first": {"first"}, "second": {"first", "second"},
	} {
		t.Run("fails at "+failing, func(t *testing.T) {
			t.Parallel()
			server := &vanilla{answer: func(line string) string {
				if line == failing {
					return "Could not do that, " + password + "!" + strings.Repeat("☃", 300)
				}
				return "Changed the block" + map[string]string{"second": "\n", "third": "\r\n"}[line]
			}}
			cfg := config(listen(t, server.serve), "first", "second", "third")
			for i := range cfg.Commands[handoff.AdvanceProject] {
				cfg.Commands[handoff.AdvanceProject][i].Expect = "^Changed the block$"
			}
			c := command(t, "wall")
			answer, err := open(t, cfg).Apply(t.Context(), c, begin)
			switch failing {
			case "":
				require.NoError(t, err)
				require.Equal(t, apply.Done(c), answer)
			case "first":
				require.NoError(t, err)
				require.Equal(t, []any{apply.Refused, rcon.ReasonUnexpectedResponse, false},
					[]any{answer.Status, answer.ReasonCode, answer.Retryable})
				require.Contains(t, answer.Message,
					`The game server answered "Could not do that, (secret)!\u2603`)
				require.Less(t, len(answer.Message), 2000)
			default:
				require.ErrorIs(t, err, apply.ErrInDoubt)
				require.NotErrorIs(t, err, apply.ErrUnavailable)
				require.ErrorContains(t, err,
					`1 of 3 commands were answered as expected; then at "second": `+
						`rcon: the answer does not match expect: "Could not do that, (secret)!`)
			}
			_, _, lines := server.seen()
			require.Equal(t, sent, lines)
		})
	}
}

// Close waits for the command that is being applied; another one that waits for its turn ends with
// its context.
func TestConsole_Close(t *testing.T) {
	t.Parallel()
	arrived, release := make(chan struct{}), make(chan struct{})
	server := &vanilla{answer: func(string) string {
		close(arrived)
		<-release
		return "ok"
	}}
	console := open(t, config(listen(t, server.serve), "say hello"))
	c := command(t, "wall")
	applied, closed := make(chan error, 1), make(chan struct{})
	go func() {
		_, err := console.Apply(t.Context(), c, begin)
		applied <- err
	}()
	<-arrived
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	_, err := console.Apply(ctx, c, begin)
	require.ErrorIs(t, err, apply.ErrUnavailable)
	require.ErrorIs(t, err, context.Canceled)
	go func() {
		console.Close()
		close(closed)
	}()
	close(release)
	require.NoError(t, <-applied, "the command is not cut off")
	<-closed
	_, err = console.Apply(t.Context(), c, begin)
	require.ErrorIs(t, err, apply.ErrUnavailable)
	require.ErrorIs(t, err, rcon.ErrClosed)
	console.Close()
	_, _, lines := server.seen()
	require.Len(t, lines, 1)
}
