package rcon_test

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"net"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	mc "github.com/Tnze/go-mc/net"
	"github.com/stretchr/testify/require"

	"worldengine/handoff"
	"worldengine/worldengine/apply"
	"worldengine/worldengine/rcon"
)

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
	"no zeros": {func(c net.Conn, id int32) { write(c, id, 0, "ok", 1, 1) }, "two zeros"},
	"one zero": {func(c net.Conn, id int32) { write(c, id, 0, "ok", 0, 1) }, "two zeros"},
	"another id": {func(c net.Conn, id int32) {
		write(c, id+7, 0, "ok", 0, 0)
	}, "speak RCON: it answered"},
	"the id before": {func(c net.Conn, id int32) {
		write(c, id-1, 0, "ok", 0, 0)
	}, "speak RCON: it answered"},
	"another kind": {func(c net.Conn, id int32) {
		write(c, id, 9, "ok", 0, 0)
	}, "speak RCON: it answered"},
	"web server": {raw([]byte("HTTP/1.1 400 Bad Request\r\n\r\n")),
		"speak RCON: a packet must have"},
}

func raw(data []byte) func(net.Conn, int32) {
	return func(conn net.Conn, _ int32) { _, _ = conn.Write(data) }
}

// write writes a packet with an end of its own, a byte at a time: a packet may come in any pieces.
func write(conn net.Conn, id, kind int32, body string, end ...byte) {
	data := binary.LittleEndian.AppendUint32(nil, uint32(10+len(body)))
	data = binary.LittleEndian.AppendUint32(data, uint32(id))
	data = binary.LittleEndian.AppendUint32(data, uint32(kind))
	for _, b := range append(append(data, body...), end...) {
		if _, err := conn.Write([]byte{b}); err != nil {
			return
		}
	}
}

// misbehaving answers properly, byte by byte, until the n-th request of each connection, which is
// the login for 0. Then it does something else.
func misbehaving(n int, do func(net.Conn, int32)) func(*mc.RCONConn) {
	return func(conn *mc.RCONConn) {
		for i := 0; ; i++ {
			id, kind, _, err := conn.ReadPacket()
			if err != nil {
				return
			}
			if i == n {
				do(conn, id)
				return
			}
			if kind == 3 {
				write(conn, id, 2, "", 0, 0)
			} else {
				write(conn, id, 0, "ok", 0, 0)
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

// Trouble at the login is no doubt, however often it happens. From the first command on it is doubt:
// the error has the place, and the connection is not used again.
func TestConsole_Trouble(t *testing.T) {
	t.Parallel()
	for name, misdeed := range misdeeds {
		for n, want := range []struct {
			err, other error
			says       string
		}{
			{apply.ErrUnavailable, apply.ErrInDoubt, "rcon: "},
			{apply.ErrInDoubt, apply.ErrUnavailable,
				`0 of 2 commands were answered as expected; then at "say 1": `},
			{apply.ErrInDoubt, apply.ErrUnavailable,
				`1 of 2 commands were answered as expected; then at "say 2": `},
		} {
			t.Run(fmt.Sprint(name, " ", n), func(t *testing.T) {
				t.Parallel()
				var connections atomic.Int32
				serve := misbehaving(n, misdeed.do)
				console := open(t, config(listen(t, func(conn *mc.RCONConn) {
					connections.Add(1)
					serve(conn)
				}), "say 1", "say 2"))
				for i := range 2 {
					_, err := console.Apply(t.Context(), command(t, "wall"), begin)
					require.ErrorIs(t, err, want.err)
					require.NotErrorIs(t, err, want.other)
					require.ErrorContains(t, err, want.says)
					require.ErrorContains(t, err, misdeed.says)
					requireNoSecret(t, err)
					require.Equal(t, int32(i+1), connections.Load())
				}
			})
		}
	}
}

// The end of the context ends any exchange, whatever the timeout is.
func TestConsole_ContextEndsExchange(t *testing.T) {
	t.Parallel()
	for n, want := range []error{apply.ErrUnavailable, apply.ErrInDoubt, apply.ErrInDoubt} {
		ctx, cancel := context.WithCancel(t.Context())
		console := open(t, config(listen(t, misbehaving(n, func(conn net.Conn, id int32) {
			cancel()
			silence(conn, id)
		})), "say 1", "say 2"))
		_, err := console.Apply(ctx, command(t, "wall"), begin)
		require.ErrorIs(t, err, want)
		require.ErrorIs(t, err, context.Canceled)
		requireNoSecret(t, err)
	}
}

// An ended context sends nothing: it ends between the login and the first command at the latest.
func TestConsole_EndedContext(t *testing.T) {
	t.Parallel()
	server := &vanilla{answer: func(string) string { return "ok" }}
	console := open(t, config(listen(t, server.serve), "say hello"))
	for range 2 { // without a connection and with one
		ctx, cancel := context.WithCancel(t.Context())
		cancel()
		_, err := console.Apply(ctx, command(t, "wall"), begin)
		require.ErrorIs(t, err, apply.ErrUnavailable)
		require.ErrorIs(t, err, context.Canceled)
		_, err = console.Apply(t.Context(), command(t, "wall"), begin)
		require.NoError(t, err)
	}
	_, _, lines := server.seen()
	require.Len(t, lines, 2)
}

// A command is not in doubt if the network did not take a byte of it.
func TestConsole_CommandNotSent(t *testing.T) {
	t.Parallel()
	server := &vanilla{answer: func(string) string { return "ok" }}
	console := open(t, config(listen(t, server.serve), "say hello"))
	_, err := console.Apply(t.Context(), command(t, "wall"), func() bool {
		console.Sever()
		return true
	})
	require.ErrorIs(t, err, apply.ErrUnavailable)
	require.NotErrorIs(t, err, apply.ErrInDoubt)
	_, err = console.Apply(t.Context(), command(t, "wall"), begin)
	require.NoError(t, err)
	connections, _, lines := server.seen()
	require.Equal(t, 2, connections)
	require.Len(t, lines, 1)
}

// A command that may not begin is not sent, and is no doubt.
func TestConsole_NotBegun(t *testing.T) {
	t.Parallel()
	server := &vanilla{answer: func(string) string { return "ok" }}
	console := open(t, config(listen(t, server.serve), "say hello"))
	for _, may := range []bool{false, true} {
		_, err := console.Apply(t.Context(), command(t, "wall"), func() bool { return may })
		require.Equal(t, !may, errors.Is(err, apply.ErrUnavailable))
	}
	_, logins, lines := server.seen()
	require.Equal(t, 2, logins)
	require.Len(t, lines, 1)
}

func TestConsole_NoConnection(t *testing.T) {
	t.Parallel()
	nobody, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	require.NoError(t, nobody.Close())
	server := &vanilla{answer: func(string) string { return "ok" }}
	for says, c := range map[string]struct {
		change func(*rcon.Config)
		want   error
	}{
		"rcon: cannot connect: dial tcp ": {func(c *rcon.Config) { c.Address = nobody.Addr().String() },
			apply.ErrUnavailable},
		"cannot connect: dial 127.0.0.1:": {func(c *rcon.Config) { c.Timeout = time.Nanosecond },
			rcon.ErrTimeout},
		"no login at 127.0.0.1:": {func(c *rcon.Config) { c.Password = "not " + password },
			rcon.ErrLoginRefused},
	} {
		cfg := config(listen(t, server.serve), "say hello")
		c.change(&cfg)
		_, err := open(t, cfg).Apply(t.Context(), command(t, "wall"), begin)
		require.ErrorIs(t, err, apply.ErrUnavailable)
		require.ErrorIs(t, err, c.want)
		require.ErrorContains(t, err, says)
		requireNoSecret(t, err)
	}
	_, _, lines := server.seen()
	require.Empty(t, lines)
}

func TestConsole_TimeoutOfExchange(t *testing.T) {
	t.Parallel()
	for n, want := range []error{apply.ErrUnavailable, apply.ErrInDoubt} {
		t.Run(want.Error(), func(t *testing.T) {
			t.Parallel()
			cfg := config(listen(t, misbehaving(n, silence)), "say hello")
			cfg.Timeout = 2 * time.Second
			start := time.Now()
			_, err := open(t, cfg).Apply(t.Context(), command(t, "wall"), begin)
			require.ErrorIs(t, err, want)
			require.ErrorIs(t, err, rcon.ErrTimeout)
			require.Less(t, time.Since(start), 30*time.Second)
			requireNoSecret(t, err)
		})
	}
}

// The first part of a long response shows that the command ran, but not how it ended.
func TestConsole_EndlessResponse(t *testing.T) {
	t.Parallel()
	part := strings.Repeat("a", 4096)
	for name, test := range map[string]struct {
		do   func(conn *mc.RCONConn, id int32)
		says string
	}{
		"too long": {func(conn *mc.RCONConn, id int32) {
			for conn.WritePacket(id, 0, part) == nil {
			}
		}, "a response has more than 65536 bytes"},
		"cut off": {func(conn *mc.RCONConn, id int32) {
			_ = conn.WritePacket(id, 0, part)
			_, _, _, _ = conn.ReadPacket()
		}, "ended the connection"},
		"a foreign part": {func(conn *mc.RCONConn, id int32) {
			_ = conn.WritePacket(id, 0, part)
			_ = conn.WritePacket(id+2, 0, part)
			silence(conn, id)
		}, "speak RCON: it answered"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			console := open(t, config(listen(t, misbehaving(1, func(conn net.Conn, id int32) {
				test.do(&mc.RCONConn{Conn: conn}, id)
			})), "say hello"))
			_, err := console.Apply(t.Context(), command(t, "wall"), begin)
			require.ErrorIs(t, err, apply.ErrInDoubt)
			require.ErrorContains(t, err, test.says)
		})
	}
}

// The password is in no message, not even if the server or a command says it.
func TestConsole_PasswordInNoMessage(t *testing.T) {
	t.Parallel()
	server := &vanilla{answer: func(line string) string {
		return "You said " + line + " to " + password
	}}
	cfg := config(listen(t, server.serve), "say "+password, "tell "+password)
	list := cfg.Commands[handoff.AdvanceProject]
	list[1].Expect = "^Told$"
	_, err := open(t, cfg).Apply(t.Context(), command(t, "wall"), begin)
	require.ErrorIs(t, err, apply.ErrInDoubt)
	require.ErrorContains(t, err, `then at "tell (secret)"`)
	require.ErrorContains(t, err, `"You said tell (secret) to (secret)"`)
	requireNoSecret(t, err)
	list[0].Expect = "^Told$"
	answer, err := open(t, cfg).Apply(t.Context(), command(t, "wall"), begin)
	require.NoError(t, err)
	require.Equal(t, rcon.ReasonUnexpectedResponse, answer.ReasonCode)
	require.NotContains(t, answer.Message, password)
}
