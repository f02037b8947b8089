package rcon_test

import (
	"bytes"
	"encoding/binary"
	"net"
	"strings"
	"testing"
	"time"

	mc "github.com/Tnze/go-mc/net"
	"github.com/stretchr/testify/require"

	"worldengine/handoff"
	"worldengine/worldengine/internal/core/apply"
	"worldengine/worldengine/internal/engine/rcon"
)

// marking is a console that is slow: it answers a command only when the end marker has come.
type marking struct {
	packets []string // the answer to a command, before the marker's answer
	deaf    bool     // it ignores markers
	late    bool     // the marker's answer comes with the answer to the next request
	write   func(net.Conn, []byte) error
}

// The ways in which the bytes of an answer come.
var ways = map[string]func(net.Conn, []byte) error{
	"in one segment": func(conn net.Conn, data []byte) error {
		_, err := conn.Write(data)
		return err
	},
	"each packet whole": func(conn net.Conn, data []byte) error {
		for len(data) > 0 {
			n := 4 + le(data)
			if _, err := conn.Write(data[:n]); err != nil {
				return err
			}
			data = data[n:]
		}
		return nil
	},
	"byte by byte": func(conn net.Conn, data []byte) error {
		for i := range data {
			if _, err := conn.Write(data[i : i+1]); err != nil {
				return err
			}
		}
		return nil
	},
}

func (m *marking) serve(conn *mc.RCONConn) {
	var command, owed int32
	for {
		id, kind, _, err := conn.ReadPacket()
		if err != nil {
			return
		}
		var answer bytes.Buffer
		if owed != 0 && kind != 0 {
			answer.Write(packet(owed, 0, "Unknown request 0"))
			owed = 0
		}
		switch kind {
		case 3:
			answer.Write(packet(id, 2, ""))
		case 2:
			command = id
		default:
			for _, body := range m.packets {
				answer.Write(packet(command, 0, body))
			}
			if owed = id; !m.deaf && !m.late {
				answer.Write(packet(id, 0, "Unknown request 0"))
			}
			if !m.late {
				owed = 0
			}
		}
		if m.write(conn, answer.Bytes()) != nil {
			return
		}
	}
}

func packet(id, kind int32, body string) []byte {
	data := binary.LittleEndian.AppendUint32(nil, uint32(10+len(body)))
	data = binary.LittleEndian.AppendUint32(data, uint32(id))
	data = binary.LittleEndian.AppendUint32(data, uint32(kind))
	return append(append(data, body...), 0, 0)
}

// A command without an answer is done when the console has answered the end marker: with nothing
// before that (Forge), or with an empty packet (vanilla). An answer that is late is read whole.
func TestConsole_SilentCommand(t *testing.T) {
	t.Parallel()
	full := strings.Repeat("a", 4096)
	for name, c := range map[string]struct {
		console marking
		expect  string
	}{
		"no packet":               {marking{}, "^$"},
		"an empty packet":         {marking{packets: []string{""}}, "^$"},
		"a late answer":           {marking{packets: []string{"ok"}}, "^ok$"},
		"a long late answer":      {marking{packets: []string{full, full, "b"}}, "^a{1000}.*b$"},
		"a late answer, deaf":     {marking{packets: []string{"ok"}, deaf: true}, "^ok$"},
		"an empty packet, deaf":   {marking{packets: []string{""}, deaf: true}, "^$"},
		"the marker's is late":    {marking{packets: []string{"ok"}, late: true}, "^ok$"},
		"the marker's, and empty": {marking{packets: []string{""}, late: true}, "^$"},
	} {
		for way, write := range ways {
			t.Run(name+" "+way, func(t *testing.T) {
				t.Parallel()
				server := c.console
				server.write = write
				cfg := config(listen(t, server.serve), "say 1", "say 2")
				for i := range cfg.Commands[handoff.AdvanceProject] {
					cfg.Commands[handoff.AdvanceProject][i].Expect = c.expect
				}
				console := open(t, cfg)
				console.SetQuiet(20 * time.Millisecond)
				for range 2 {
					requireDone(t, console, command(t, "wall"))
				}
			})
		}
	}
}

// Without an answer to the command or to the marker it is in doubt whether the command was done.
func TestConsole_SilentConsole(t *testing.T) {
	t.Parallel()
	console := marking{deaf: true, write: ways["in one segment"]}
	cfg := config(listen(t, console.serve), "say 1", "say 2")
	cfg.Timeout = time.Second
	_, err := open(t, cfg).Apply(t.Context(), command(t, "wall"), allow)
	requireDoubt(t, 1, err)
	require.ErrorIs(t, err, rcon.ErrTimeout)
}

// Colours in an answer do not matter, unless expect has them.
func TestConsole_Colours(t *testing.T) {
	t.Parallel()
	for text, expect := range map[string]string{
		"§aSet §r[progress] to 5": `^Set \[progress\] to [0-9]+$`,
		"\x1b[32;1mSet 5\x1b[m":   "^Set 5$",
		"§cSet 5":                 "^§cSet",
		"§x§F§f§0§0§0§0Set 5":     "^Set 5$",
		"No §k5":                  "",
		"§4No such objective":     "",
	} {
		server := &vanilla{answer: func(string) string { return text }}
		cfg := config(listen(t, server.serve), "say 1")
		cfg.Commands[handoff.AdvanceProject][0].Expect = expect
		if expect == "" {
			cfg.Commands[handoff.AdvanceProject][0].Expect = "^Set"
		}
		c := command(t, "wall")
		answer, err := open(t, cfg).Apply(t.Context(), c, allow)
		require.NoError(t, err)
		require.Equal(t, expect != "", answer.Status == apply.Applied, text)
	}
}
