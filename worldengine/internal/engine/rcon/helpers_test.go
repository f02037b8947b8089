package rcon_test

import (
	"sync"
	"testing"
	"time"
	"unicode/utf16"

	mc "github.com/Tnze/go-mc/net"
	"github.com/stretchr/testify/require"

	"worldengine/handoff"
	"worldengine/worldengine/internal/core/apply"
	"worldengine/worldengine/internal/core/town"
	"worldengine/worldengine/internal/core/town/towntest"
	"worldengine/worldengine/internal/engine/rcon"
)

const password = "correct horse battery staple"

// testTimeout is a timeout that no test reaches.
const testTimeout = rcon.MaxTimeout

// config is one command for each of the texts, for the type that command(t) has.
func config(address string, run ...string) rcon.Config {
	list := make([]rcon.Template, len(run))
	for i, text := range run {
		list[i].Run = text
	}
	return rcon.Config{
		Address: address, Password: password, Timeout: testTimeout,
		Names:    map[string]string{"Wall, \"north\"": "the north wall"},
		Commands: map[handoff.ProposalType][]rcon.Template{handoff.AdvanceProject: list},
	}
}

// allow lets every command begin.
func allow() bool { return true }

func open(t testing.TB, cfg rcon.Config) *rcon.Console {
	t.Helper()
	console, err := rcon.New(cfg)
	require.NoError(t, err)
	t.Cleanup(console.Close)
	return console
}

// command is an accepted command as the engine makes it: a project goes from 40 to 50 percent.
func command(t testing.TB, projectID string) *apply.Command {
	t.Helper()
	return commandOf(t, handoff.AdvanceProject, projectID)
}

func commandOf(t testing.TB, kind handoff.ProposalType, argument string) *apply.Command {
	t.Helper()
	before := town.NewState(&town.Snapshot{
		SchemaVersion: town.SchemaVersion, Day: 3, TownID: "oak-hill",
		SideQuests: []town.SideQuest{{ID: "quest-1", Title: "Lanterns"}},
		Projects: []town.Project{{
			ID: argument, Name: "Wall, \"north\"", Progress: 0.4, Status: town.Active,
		}},
		Pressure: town.Pressure{Threat: 0.7, Scarcity: 0.305, Hope: 0.55, Dread: 0.1},
	})
	h := towntest.Propose(t, before, kind, argument)
	after, reason := town.DefaultRules().Apply(before.Snapshot, &h.Proposal)
	require.Empty(t, reason)
	return apply.NewCommand(h, "0d3c6a9e-4f0c-4a8e-9d5d-3d4c0f7dbb8a", before, after)
}

// listen starts a server that handles its connections with serve, which returns when its connection
// is closed. The test waits for it.
func listen(t testing.TB, serve func(*mc.RCONConn)) (address string) {
	t.Helper()
	listener, err := mc.ListenRCON("127.0.0.1:0")
	require.NoError(t, err)
	var running sync.WaitGroup
	running.Go(func() {
		for {
			conn, err := listener.Accept()
			if err != nil {
				return
			}
			running.Go(func() {
				defer conn.Close()
				serve(conn.(*mc.RCONConn))
			})
		}
	})
	t.Cleanup(func() {
		require.NoError(t, listener.Close())
		done := make(chan struct{})
		go func() { running.Wait(); close(done) }()
		select {
		case <-done:
		case <-time.After(time.Minute):
			t.Error("the server's connections were not closed")
		}
	})
	return listener.Addr().String()
}

// vanilla is a console that reads, splits and refuses as vanilla does.
type vanilla struct {
	answer func(line string) string

	mu          sync.Mutex
	connections int
	logins      int
	lines       []string
}

func (v *vanilla) seen() (connections, logins int, lines []string) {
	v.mu.Lock()
	defer v.mu.Unlock()
	return v.connections, v.logins, append([]string(nil), v.lines...)
}

func (v *vanilla) count(counter *int) {
	v.mu.Lock()
	defer v.mu.Unlock()
	*counter++
}

// serve hangs up when one read does not give exactly one packet.
func (v *vanilla) serve(conn *mc.RCONConn) {
	v.count(&v.connections)
	buffer := make([]byte, 1460)
	loggedIn := false
	for {
		n, err := conn.Read(buffer)
		if err != nil || n < 14 || int(le(buffer)) != n-4 {
			return
		}
		id, kind, body := le(buffer[4:]), le(buffer[8:]), string(buffer[12:n-2])
		switch {
		case kind == 3:
			v.count(&v.logins)
			if loggedIn = body == password; loggedIn {
				err = conn.WritePacket(id, 2, "")
			} else {
				err = conn.WritePacket(-1, 2, "")
			}
		case kind == 2 && loggedIn:
			err = v.respond(conn, id, body)
		case kind == 2:
			err = conn.WritePacket(-1, 2, "")
		default:
			err = conn.WritePacket(id, 0, "Unknown request "+string(rune('0'+kind)))
		}
		if err != nil {
			return
		}
	}
}

// respond writes a response in packets of 4,096 UTF-16 units, at least one.
func (v *vanilla) respond(conn *mc.RCONConn, id int32, line string) error {
	v.mu.Lock()
	v.lines = append(v.lines, line)
	v.mu.Unlock()
	rest := utf16.Encode([]rune(v.answer(line)))
	for {
		part := rest[:min(4096, len(rest))]
		rest = rest[len(part):]
		if err := conn.WritePacket(id, 0, string(utf16.Decode(part))); err != nil {
			return err
		}
		if len(rest) == 0 {
			return nil
		}
	}
}

func le(data []byte) int32 {
	return int32(data[0]) | int32(data[1])<<8 | int32(data[2])<<16 | int32(data[3])<<24
}
