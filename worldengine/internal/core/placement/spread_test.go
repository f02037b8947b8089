package placement

import (
	"fmt"
	"math/rand/v2"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

func names(kind string, n int, random *rand.Rand) (names []string) {
	for range n {
		names = append(names, fmt.Sprintf("%s-%08x", kind, random.Uint32()))
	}
	return names
}

func anything(string, string) bool { return true }

// differing counts the worlds that two spreads have with different servers.
func differing(a, b *spread) (n int) {
	for world, server := range a.owner {
		if b.owner[world] != server {
			n++
		}
	}
	return n
}

// No server has two worlds more than another one. Few worlds move beside those that must when a server
// goes or comes, or when there is one world more.
func TestSpread_EvenAndStable(t *testing.T) {
	t.Parallel()
	const rounds, worlds = 100, 60
	random := rand.New(rand.NewPCG(1, 2))
	var left, came, created int
	for range rounds {
		w, s := names("world", worlds, random), names("server", 4, random)
		three := newSpread(w, s[:3], anything)
		for _, server := range s[:3] {
			require.Equal(t, worlds/3, three.load[server])
		}
		left += differing(three, newSpread(w, s[:2], anything)) - worlds/3
		four := newSpread(w, s, anything)
		require.Equal(t, worlds/4, four.load[s[3]])
		came += differing(three, four) - worlds/4
		created += differing(three, newSpread(append(w, "one-more"), s[:3], anything))
	}
	t.Logf("moves beside those that must be: %.2f when one of three servers goes, %.2f when a fourth comes, "+
		"%.2f when a world is created", float64(left)/rounds, float64(came)/rounds, float64(created)/rounds)
	require.Less(t, left, 2*rounds)
	require.Less(t, came, 3*rounds)
	require.Less(t, created, 2*rounds)
}

// Servers that would serve only some worlds have as many of them as evens the spread.
func TestSpread_OwnWorlds(t *testing.T) {
	t.Parallel()
	worlds := names("world", 30, rand.New(rand.NewPCG(3, 4)))
	s := newSpread(worlds, []string{"all", "some"}, func(server, world string) bool {
		return server == "all" || world < worlds[0]
	})
	for world, server := range s.owner {
		require.True(t, server == "all" || world < worlds[0])
	}
	require.Len(t, s.owner, len(worlds))
	require.Empty(t, newSpread(worlds, nil, anything).owner)
	require.Nil(t, newSpread(worlds, nil, anything).order(worlds[0]))
}

func TestSpread_Order(t *testing.T) {
	t.Parallel()
	servers := []string{"a", "b", "c"}
	s := newSpread([]string{"w"}, servers, anything)
	require.ElementsMatch(t, servers, s.order("w"))
	require.Equal(t, s.owner["w"], s.order("w")[0])
	require.Equal(t, s.order("w"), newSpread([]string{"w"}, []string{"c", "b", "a"}, anything).order("w"))
}

func BenchmarkSpread(b *testing.B) {
	random := rand.New(rand.NewPCG(5, 6))
	worlds, servers := names("world", 1000, random), names("server", 3, random)
	for b.Loop() {
		newSpread(worlds, servers, anything)
	}
}

func BenchmarkDecide_Calm(b *testing.B) {
	worlds := names("world", 1000, rand.New(rand.NewPCG(7, 8)))
	v := New(0, Announcement{ID: "self", All: true})
	for _, name := range worlds {
		v.Acquired(0, name)
	}
	for now := time.Duration(0); b.Loop(); now += time.Second {
		v.Decide(now)
	}
}
