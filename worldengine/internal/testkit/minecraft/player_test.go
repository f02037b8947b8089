//go:build minecraft

package minecraft_test

import (
	"fmt"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/Tnze/go-mc/bot"
	"github.com/Tnze/go-mc/bot/basic"
	"github.com/Tnze/go-mc/chat"
	"github.com/Tnze/go-mc/data/packetid"
	"github.com/Tnze/go-mc/level/block"
	pk "github.com/Tnze/go-mc/net/packet"
	"github.com/stretchr/testify/require"
)

// sighting is a block that a player saw change, or a line of chat.
type sighting struct {
	block string
	at    pk.Position
	chat  string
}

// player is in the game and records its sightings, in order.
type player struct {
	client  *bot.Client // of go-mc
	mu      sync.Mutex
	seen    []sighting
	err     error         // why it is not in the game any more
	news    chan struct{} // closed at the next change of the above
	checked int           // how many sightings were expected and came
}

// join lets a player join, and returns when it is announced.
func join(t testing.TB, g *game) *player {
	t.Helper()
	p := &player{news: make(chan struct{})}
	servers[*serverName].join(t, g, p)
	require.NoError(t, p.sees(startsTimeout, chatWith("Watcher joined the game")))
	return p
}

// joinGoMC lets a player of go-mc join, who speaks the protocol of Minecraft 1.20.2.
func joinGoMC(t testing.TB, g *game, p *player) {
	t.Helper()
	client := bot.NewClient()
	p.client = client
	client.Auth.Name = "Watcher"
	basic.NewPlayer(client, basic.DefaultSettings, basic.EventsListener{})
	client.Events.AddListener(
		bot.PacketHandler{ID: packetid.ClientboundBlockUpdate, F: p.onBlock},
		bot.PacketHandler{ID: packetid.ClientboundSystemChat, F: p.onChat},
	)
	require.NoError(t, client.JoinServer("127.0.0.1:"+g.port))
	t.Cleanup(func() { _ = client.Close() })
	go func() {
		err := client.HandleGame()
		p.note(func() { p.err = fmt.Errorf("the player has left the game: %w", err) })
	}()
}

// command gives a command in the chat, without its slash.
func (p *player) command(t testing.TB, text string) {
	t.Helper()
	require.NoError(t, p.client.Conn.WritePacket(pk.Marshal(
		// salt
		packetid.ServerboundChatCommand, pk.String(text),
		pk.Long(time.Now().UnixMilli()), pk.Long(0),
		pk.VarInt(0), pk.VarInt(0), pk.NewFixedBitSet(20), // no signatures, no messages seen
	)))
}

func (p *player) onBlock(packet pk.Packet) error {
	var at pk.Position
	var state pk.VarInt
	if err := packet.Scan(&at, &state); err != nil {
		return err
	}
	if int(state) >= len(block.StateList) {
		return fmt.Errorf("unknown block state %d", state)
	}
	name := strings.TrimPrefix(block.StateList[state].ID(), "minecraft:")
	p.note(func() { p.seen = append(p.seen, sighting{block: name, at: at}) })
	return nil
}

func (p *player) onChat(packet pk.Packet) error {
	var message chat.Message
	var overlay pk.Boolean
	if err := packet.Scan(&message, &overlay); err != nil {
		return err
	}
	p.note(func() { p.seen = append(p.seen, sighting{chat: message.ClearString()}) })
	return nil
}

func (p *player) note(change func()) {
	p.mu.Lock()
	defer p.mu.Unlock()
	change()
	close(p.news)
	p.news = make(chan struct{})
}

// expectation checks a player's sightings since the last expectation that was met. It names
// everything that may have been seen, so an unexpected sighting fails this one or the next.
type expectation func(seen []sighting) error

// sees waits until an expectation is met. The error is the expectation's last one.
func (p *player) sees(within time.Duration, want expectation) error {
	deadline := time.After(within)
	for {
		p.mu.Lock()
		err := want(p.seen[p.checked:])
		if err == nil {
			p.checked = len(p.seen)
		}
		left, news := p.err, p.news
		p.mu.Unlock()
		if err == nil {
			return nil
		}
		if left != nil {
			return left
		}
		select {
		case <-news:
		case <-deadline:
			return err
		}
	}
}

// chatWith expects one line of chat that has all the parts.
func chatWith(parts ...string) expectation {
	return func(seen []sighting) error {
		if len(seen) != 1 {
			return fmt.Errorf("saw %v, and not one line of chat with %q", seen, parts)
		}
		for _, part := range parts {
			if !strings.Contains(seen[0].chat, part) {
				return fmt.Errorf("saw %v, and not chat with %q", seen, part)
			}
		}
		return nil
	}
}

// lastly expects want of the last sighting, whatever came before.
func lastly(want expectation) expectation {
	return func(seen []sighting) error { return want(seen[max(len(seen)-1, 0):]) }
}

// blocks expects count blocks of a name, each at a place of its own, all in one line on the map.
func blocks(name string, count int) expectation {
	return func(seen []sighting) error {
		if len(seen) != count {
			return fmt.Errorf("saw %d changes, and not %d blocks of %s: %v", len(seen),
				count, name, seen)
		}
		places := map[pk.Position]bool{}
		for _, s := range seen {
			places[s.at] = true
			if s.block != name || s.at.Z != seen[0].at.Z {
				return fmt.Errorf("saw %v, and not %s in one line", s, name)
			}
		}
		if len(places) != count {
			return fmt.Errorf("saw %d places change, and not %d", len(places), count)
		}
		return nil
	}
}
