package rcon_test

import (
	"context"
	"encoding/binary"
	"fmt"
	"io"
	"net"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	mc "github.com/Tnze/go-mc/net"
	"github.com/stretchr/testify/require"

	"worldengine/handoff"
	"worldengine/worldengine/internal/core/apply"
	"worldengine/worldengine/internal/engine/rcon"
)

// requireDone applies a command.
func requireDone(t *testing.T, console *rcon.Console, c *apply.Command) {
	t.Helper()
	answer, err := console.Apply(t.Context(), c, allow)
	require.NoError(t, err)
	require.Equal(t, apply.Done(c), answer)
}

// The commands run in order, on one connection, which each login tests.
func TestConsole_CommandsInOrder(t *testing.T) {
	t.Parallel()
	server := &vanilla{answer: func(line string) string { return "Done: " + line }}
	console := open(t, config(listen(t, server.serve),
		"function towns:advance/{argument}", "say The {title} is at {progress} %, on day {day}."))
	for range 3 {
		requireDone(t, console, command(t, "wall"))
	}
	connections, logins, lines := server.seen()
	require.Equal(t, [3]int{1, 3, 6}, [3]int{connections, logins, len(lines)})
	require.Equal(t,
		[]string{"function towns:advance/wall", "say The the north wall is at 50 %, on day 4."},
		lines[:2])
}

// The server of go-mc's documentation closes the connection at a second login. Nothing is sent twice.
func TestConsole_ServerOfOneLogin(t *testing.T) {
	t.Parallel()
	lines := make(chan string, 9)
	console := open(t, config(listen(t, func(conn *mc.RCONConn) {
		if conn.AcceptLogin(password) != nil {
			return
		}
		for {
			line, err := conn.AcceptCmd()
			if err != nil {
				return
			}
			lines <- line
			if conn.RespCmd("ok") != nil {
				return
			}
		}
	}), "say {argument}"))
	for _, id := range []string{"a", "b", "c"} {
		requireDone(t, console, command(t, id))
		require.Equal(t, "say "+id, <-lines)
	}
	require.Empty(t, lines)
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
		"and many of them":        strings.Repeat("☃", 20000),
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			server := &vanilla{answer: func(line string) string {
				return map[string]string{"short": "short", "long": text + "$"}[line]
			}}
			cfg := config(listen(t, server.serve), "long", "short", "long", "short")
			list := cfg.Commands[handoff.AdvanceProject]
			for i := range list {
				list[i].Expect = "^" + text[:min(len(text), 900)] + `.*\$$`
				if list[i].Run == "short" {
					list[i].Expect = "^short$"
				}
			}
			requireDone(t, open(t, cfg), command(t, "wall"))
			connections, _, lines := server.seen()
			require.Equal(t, 1, connections)
			require.Len(t, lines, 4)
		})
	}
}

func TestConsole_OneCommandAtATime(t *testing.T) {
	t.Parallel()
	server := &vanilla{answer: func(string) string { return "ok" }}
	console := open(t, config(listen(t, server.serve), "first {argument}", "second {argument}"))
	var all sync.WaitGroup
	for i := range 20 {
		c := command(t, fmt.Sprint("project-", i))
		all.Go(func() {
			answer, err := console.Apply(t.Context(), c, allow)
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

// A command of a type without commands, or with an unsafe value in any of them, is refused before the
// console connects.
func TestConsole_Refused(t *testing.T) {
	t.Parallel()
	console := open(t, config("127.0.0.1:1", "say hello", "say {argument}"))
	for reason, c := range map[string]*apply.Command{
		rcon.ReasonNotConfigured:  commandOf(t, handoff.TalkToTownsfolk, "casual"),
		rcon.ReasonUnsafeArgument: command(t, "wall\nop mallory"),
	} {
		answer, err := console.Apply(t.Context(), c, allow)
		require.NoError(t, err)
		message := map[string]string{
			rcon.ReasonNotConfigured: "The console has no commands for TOWNSFOLK_TALK.",
			rcon.ReasonUnsafeArgument: `Not for a console: {argument} is "wall\nop mallory", which is ` +
				"not 1 to 64 characters of A-Z a-z 0-9 _ - and has no entry in the names of the " +
				"console's configuration.",
		}[reason]
		require.Equal(t, apply.Refuse(c, reason, message, false), answer)
	}
}

// The response to the first command decides if anything was done; after later ones the command is in
// doubt. No message has the password, even if the server or a command says it.
func TestConsole_Expect(t *testing.T) {
	t.Parallel()
	const second = "second " + password
	for failing, sent := range map[string][]string{
		"": {"first", second, "third"}, "first": {"first"}, second: {"first", second},
	} {
		t.Run("fails at "+failing, func(t *testing.T) {
			t.Parallel()
			server := &vanilla{answer: func(line string) string {
				if line == failing {
					return "Could not do that, " + password + "!" + strings.Repeat("☃", 300)
				}
				return "Changed the block" + map[string]string{second: "\n", "third": "\r\n"}[line]
			}}
			cfg := config(listen(t, server.serve), "first", second, "third")
			for i := range cfg.Commands[handoff.AdvanceProject] {
				cfg.Commands[handoff.AdvanceProject][i].Expect = "^Changed the block$"
			}
			c := command(t, "wall")
			answer, err := open(t, cfg).Apply(t.Context(), c, allow)
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
					`1 of 3 commands were answered as expected; then at "second (secret)": `+
						`rcon: the answer does not match expect: "Could not do that, (secret)!`)
				requireNoSecret(t, err)
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
		_, err := console.Apply(t.Context(), c, allow)
		applied <- err
	}()
	<-arrived
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	_, err := console.Apply(ctx, c, allow)
	require.ErrorIs(t, err, apply.ErrUnavailable)
	require.ErrorIs(t, err, context.Canceled)
	go func() {
		console.Close()
		close(closed)
	}()
	close(release)
	require.NoError(t, <-applied, "the command is not cut off")
	<-closed
	_, _, lines := server.seen()
	require.Len(t, lines, 1)
}

// misdeeds are done by a server instead of a proper answer to the request id. The connection is
// closed after each.
var misdeeds = map[string]struct {
	do   func(conn net.Conn, id int32)
	says string // in the error
}{
	"disconnect":    {func(net.Conn, int32) {}, "ended the connection"},
	"half a length": {raw([]byte{20, 0}), "ended the connection"},
	"half a packet": {raw([]byte{20, 0, 0, 0, 1, 0, 0, 0}), "ended the connection"},
	"no body": {raw([]byte{9, 0, 0, 0, 1, 0, 0, 0, 0, 0, 0, 0, 0}),
		"10 to 12298 bytes, not 9"},
	"negative length":  {raw([]byte{255, 255, 255, 255}), "10 to 12298 bytes, not -1"},
	"oversized length": {raw([]byte{0, 0, 0, 64}), "10 to 12298 bytes, not 1073741824"},
	"one byte more": {raw(binary.LittleEndian.AppendUint32(nil, 12299)),
		"10 to 12298 bytes, not 12299"},
	"no zeros":      {written(0, 0, "ok", 1, 1), "two zeros"},
	"one zero":      {written(0, 0, "ok", 0, 1), "two zeros"},
	"another id":    {written(7, 0, "ok", 0, 0), "speak RCON: it answered"},
	"the id before": {written(-1, 0, "ok", 0, 0), "speak RCON: it answered"},
	"another kind":  {written(0, 9, "ok", 0, 0), "speak RCON: it answered"},
	"web server": {raw([]byte("HTTP/1.1 400 Bad Request\r\n\r\n")),
		"speak RCON: a packet must have"},
}

func raw(data []byte) func(net.Conn, int32) {
	return func(conn net.Conn, _ int32) { _, _ = conn.Write(data) }
}

// written writes a packet with another id and an end of its own, a byte at a time: a packet may come
// in any pieces.
func written(other, kind int32, body string, end ...byte) func(net.Conn, int32) {
	return func(conn net.Conn, id int32) {
		data := binary.LittleEndian.AppendUint32(nil, uint32(10+len(body)))
		data = binary.LittleEndian.AppendUint32(data, uint32(id+other))
		data = binary.LittleEndian.AppendUint32(data, uint32(kind))
		for _, b := range append(append(data, body...), end...) {
			if _, err := conn.Write([]byte{b}); err != nil {
				return
			}
		}
	}
}

// misbehaving answers properly, byte by byte, before the n-th request of each connection; request 0 is
// the login. To that request it does something else.
func misbehaving(n int, do func(net.Conn, int32)) func(*mc.RCONConn) {
	return func(conn *mc.RCONConn) {
		for i := 0; ; i++ {
			id, kind, _, err := conn.ReadPacket()
			switch {
			case err != nil:
				return
			case i == n:
				do(conn, id)
				return
			case kind == 3:
				written(0, 2, "", 0, 0)(conn, id)
			default:
				written(0, 0, "ok", 0, 0)(conn, id)
			}
		}
	}
}

// silence reads on until the client gives up.
func silence(conn net.Conn, _ int32) { _, _ = io.Copy(io.Discard, conn) }

// requireNoSecret: an error, however it is written, does not have the password.
func requireNoSecret(t *testing.T, err error) {
	t.Helper()
	require.NotContains(t, fmt.Sprintf("%v %+v %#v %q", err, err, err, err), password)
}

// requireDoubt requires that an error is no doubt at the login, 0, and doubt at any command, with its
// place among the two.
func requireDoubt(t *testing.T, n int, err error) {
	t.Helper()
	requireNoSecret(t, err)
	if n == 0 {
		require.ErrorIs(t, err, apply.ErrUnavailable)
		require.NotErrorIs(t, err, apply.ErrInDoubt)
		return
	}
	require.ErrorIs(t, err, apply.ErrInDoubt)
	require.NotErrorIs(t, err, apply.ErrUnavailable)
	require.ErrorContains(t, err, fmt.Sprintf(
		`%d of 2 commands were answered as expected; then at "say %d": `, n-1, n))
}

// Trouble at the login is no doubt, however often it happens. From the first command on it is doubt:
// the error has the place, and the connection is not used again.
func TestConsole_Trouble(t *testing.T) {
	t.Parallel()
	for name, misdeed := range misdeeds {
		for n := range 3 {
			t.Run(fmt.Sprint(name, " ", n), func(t *testing.T) {
				t.Parallel()
				var connections atomic.Int32
				serve := misbehaving(n, misdeed.do)
				console := open(t, config(listen(t, func(conn *mc.RCONConn) {
					connections.Add(1)
					serve(conn)
				}), "say 1", "say 2"))
				for i := range 2 {
					_, err := console.Apply(t.Context(), command(t, "wall"), allow)
					requireDoubt(t, n, err)
					require.ErrorContains(t, err, misdeed.says)
					require.Equal(t, int32(i+1), connections.Load())
				}
			})
		}
	}
}

// The end of the context ends any exchange, and so does the timeout.
func TestConsole_Silence(t *testing.T) {
	t.Parallel()
	for n := range 3 {
		t.Run(fmt.Sprintf("after %d answers", n), func(t *testing.T) {
			t.Parallel()
			ctx, cancel := context.WithCancel(t.Context())
			console := open(t, config(listen(t, misbehaving(n, func(conn net.Conn, id int32) {
				cancel()
				silence(conn, id)
			})), "say 1", "say 2"))
			_, err := console.Apply(ctx, command(t, "wall"), allow)
			requireDoubt(t, n, err)
			require.ErrorIs(t, err, context.Canceled)

			cfg := config(listen(t, misbehaving(n, silence)), "say 1", "say 2")
			cfg.Timeout = time.Second
			_, err = open(t, cfg).Apply(t.Context(), command(t, "wall"), allow)
			requireDoubt(t, n, err)
			require.ErrorIs(t, err, rcon.ErrTimeout)
		})
	}
}

// A command is no doubt if no byte of it was sent: because its context has ended, its caller did not
// let it begin, or the network took nothing.
func TestConsole_NotSent(t *testing.T) {
	t.Parallel()
	server := &vanilla{answer: func(string) string { return "ok" }}
	console := open(t, config(listen(t, server.serve), "say hello"))
	ended, cancel := context.WithCancel(t.Context())
	cancel()
	for _, c := range []struct {
		ctx   context.Context
		begin func() bool
		want  error
	}{
		{ended, allow, context.Canceled}, // without a connection
		{t.Context(), allow, nil},
		{ended, allow, context.Canceled},
		{t.Context(), func() bool { return false }, apply.ErrUnavailable},
		{t.Context(), func() bool { console.Sever(); return true }, apply.ErrUnavailable},
		{t.Context(), allow, nil},
	} {
		_, err := console.Apply(c.ctx, command(t, "wall"), c.begin)
		if c.want == nil {
			require.NoError(t, err)
			continue
		}
		require.ErrorIs(t, err, c.want)
		requireDoubt(t, 0, err)
	}
	_, _, lines := server.seen()
	require.Len(t, lines, 2)
}

func TestConsole_NoConnection(t *testing.T) {
	t.Parallel()
	server := &vanilla{answer: func(string) string { return "ok" }}
	for says, c := range map[string]struct {
		change func(*rcon.Config)
		want   error
	}{
		"rcon: cannot connect: dial tcp ": {func(c *rcon.Config) { c.Address = "127.0.0.1:1" },
			apply.ErrUnavailable},
		"cannot connect: dial 127.0.0.1:": {func(c *rcon.Config) { c.Timeout = time.Nanosecond },
			rcon.ErrTimeout},
		"no login at 127.0.0.1:": {func(c *rcon.Config) { c.Password = "not " + password },
			rcon.ErrLoginRefused},
	} {
		cfg := config(listen(t, server.serve), "say hello")
		c.change(&cfg)
		_, err := open(t, cfg).Apply(t.Context(), command(t, "wall"), allow)
		requireDoubt(t, 0, err)
		require.ErrorIs(t, err, c.want)
		require.ErrorContains(t, err, says)
	}
	_, _, lines := server.seen()
	require.Empty(t, lines)
}

// The first part of a long response shows that the command ran, but not how it ended.
func TestConsole_EndlessResponse(t *testing.T) {
	t.Parallel()
	part := strings.Repeat("a", 4096)
	for says, do := range map[string]func(conn *mc.RCONConn, id int32){
		"a response has more than 65536 bytes": func(conn *mc.RCONConn, id int32) {
			for conn.WritePacket(id, 0, part) == nil {
			}
		},
		"ended the connection": func(conn *mc.RCONConn, id int32) {
			_ = conn.WritePacket(id, 0, part)
			_, _, _, _ = conn.ReadPacket()
		},
		"speak RCON: it answered": func(conn *mc.RCONConn, id int32) {
			_ = conn.WritePacket(id, 0, part)
			_ = conn.WritePacket(id+2, 0, part)
			silence(conn, id)
		},
	} {
		t.Run(says, func(t *testing.T) {
			t.Parallel()
			console := open(t, config(listen(t, misbehaving(1, func(conn net.Conn, id int32) {
				do(&mc.RCONConn{Conn: conn}, id)
			})), "say 1", "say 2"))
			_, err := console.Apply(t.Context(), command(t, "wall"), allow)
			requireDoubt(t, 1, err)
			require.ErrorContains(t, err, says)
		})
	}
}
