package placement

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// pair is the view of the server "self" of two servers that would serve every world.
type pair struct {
	*View
	t     *testing.T
	now   time.Duration
	other Announcement
}

func newPair(t *testing.T) *pair {
	t.Helper()
	return &pair{View: New(0, Announcement{ID: "self", Name: "this one", All: true}), t: t,
		other: Announcement{ID: "other", Name: "other", All: true}}
}

// worldOf returns a world of which a server is the first.
func (p *pair) worldOf(server string) string {
	for i := 0; ; i++ {
		name := fmt.Sprint("w", i)
		if newSpread([]string{name}, []string{"other", "self"}, anything).owner[name] == server {
			return name
		}
	}
}

// serveAnother makes this server serve another world, of which it is the first.
func (p *pair) serveAnother() {
	for i := 100; ; i++ {
		name := fmt.Sprint("x", i)
		s := newSpread([]string{name, p.worldOf("other")}, []string{"other", "self"}, anything)
		if s.owner[name] == "self" && s.owner[p.worldOf("other")] == "other" {
			p.Acquired(p.now, name)
			return
		}
	}
}

// heard lets time pass, in which the other server announces itself every second.
func (p *pair) heard(d time.Duration) {
	for end := p.now + d; p.now < end; p.now += time.Second {
		p.announce()
		p.Decide(p.now)
	}
	p.announce()
}

func (p *pair) announce() {
	p.other.Seq++
	p.Receive(p.now, p.other)
}

// decides requires the decision about the first world.
func (p *pair) decides(action Action, why string) Decision {
	p.t.Helper()
	all := p.Decide(p.now)
	require.NotEmpty(p.t, all)
	require.Equal(p.t, action, all[0].Action, "%+v", all[0])
	require.Contains(p.t, all[0].Reason, why)
	return all[0]
}

func TestView_FreeWorld(t *testing.T) {
	t.Parallel()
	p := newPair(t)
	p.announce()
	name := p.worldOf("other")
	p.AddWorld(p.now, name)
	p.decides(ReadLease, "not been read")
	p.NoteHolder(p.now, name, "")
	require.Equal(t, AcquireDelay, p.decides(Acquire, "number 2").Delay)
	p.now += AcquireDelay
	require.Zero(t, p.decides(Acquire, "number 2").Delay)
	p.NoteHolder(p.now, name, "unheard")
	p.decides(StayAway, "held by the server unheard")
	p.now += LeaseReadInterval
	p.decides(ReadLease, "held by the server unheard")
	p.now += SilenceTimeout // the other server is silent
	p.NoteHolder(p.now, name, "")
	require.Zero(t, p.decides(Acquire, "number 1").Delay)
	p.Acquired(p.now, name)
	p.decides(Keep, "the only world")
	p.Released(p.now, name, true)
	p.decides(ReadLease, "not been read")
	p.RemoveWorld(name)
	require.Empty(t, p.Decide(p.now))
}

func TestView_Handover(t *testing.T) {
	t.Parallel()
	p := newPair(t)
	name := p.worldOf("other")
	p.Acquired(p.now, name)
	p.decides(Keep, "the only world")
	p.serveAnother()
	p.decides(Keep, "this server is the first")
	p.heard(MinServerAge - 2*time.Second)
	p.decides(Keep, "until the servers are the same")
	p.heard(3 * time.Second)
	p.decides(Keep, "until other is ready")
	p.other.Ready = []string{name}
	p.heard(time.Second)
	p.decides(Keep, "before it moves")
	p.SetBusy(name, true)
	p.heard(MinTenureAge - p.now)
	p.decides(Keep, "when no request is in hand")
	p.SetBusy(name, false)
	require.Equal(t, "other", p.decides(HandOver, "moves to other").To)
	p.SetBusy(name, true)
	p.heard(BusyTimeout)
	p.decides(HandOver, "moves to other")

	p.StartHandover(p.now, name)
	p.decides(Keep, "being handed over")
	p.Released(p.now, name, false)
	require.Equal(t, AcquireDelay, p.decides(Acquire, "number 2").Delay)
	require.True(t, p.handoverPending(p.now))
	p.other.Serves, p.other.Ready = []string{name}, nil
	p.announce()
	p.decides(StayAway, "served by other")
	require.False(t, p.handoverPending(p.now))
}

// A server that flaps receives no world. One that is away for a moment is new again.
func TestView_Flaps(t *testing.T) {
	t.Parallel()
	p := newPair(t)
	name := p.worldOf("other")
	p.Acquired(p.now, name)
	p.serveAnother()
	p.other.Ready = []string{name}
	p.heard(MinServerAge + MinTenureAge)
	p.decides(HandOver, "")
	p.now += SilenceTimeout
	p.decides(Keep, "is the first")
	p.announce()
	p.decides(Keep, "until the servers are the same")
	p.heard(MinServerAge)
	p.decides(HandOver, "")
	p.now += time.Minute // this server itself was suspended, and reads an old announcement now
	p.announce()
	p.decides(Keep, "until the servers are the same")
}

// A young server acquires a free world after those that are stable, even if it is the first: it may be
// one that flaps. The announcements of the others say that they are older.
func TestView_Young(t *testing.T) {
	t.Parallel()
	number := func(p *pair, n int, server, why string) {
		t.Helper()
		p.announce()
		p.AddWorld(p.now, p.worldOf(server))
		p.NoteHolder(p.now, p.worldOf(server), "")
		require.Contains(t, p.Decide(p.now)[0].Reason, fmt.Sprintf("number %d of", n), why)
	}
	p := newPair(t)
	number(p, 1, "self", "both are young")
	p = newPair(t)
	p.other.UptimeMillis = MinServerAge.Milliseconds()
	number(p, 2, "self", "this server is young")
	p.heard(MinServerAge)
	number(p, 1, "self", "both are stable")
	p.now += 2 * SilenceTimeout
	number(p, 2, "self", "this server was suspended, and is new to the others")
	p.now += SilenceTimeout
	p.decides(Acquire, "number 1 of") // this server is alone

	p = newPair(t)
	p.heard(MinServerAge)
	number(p, 2, "other", "an earlier program is as old as it was heard")
	p.other.UptimeMillis = 1
	number(p, 1, "other", "the other one is young")
}

// A server counts as ready for a world only if it is the first by its own view, too.
func TestView_Wanted(t *testing.T) {
	t.Parallel()
	p := newPair(t)
	name := p.worldOf("self")
	p.other.Serves = []string{name}
	p.heard(MinServerAge - 2*time.Second)
	require.False(t, p.decides(StayAway, "served by other").Wanted)
	p.heard(3 * time.Second)
	require.True(t, p.decides(StayAway, "served by other").Wanted)
	p.UpdateSelf(p.now, Announcement{ID: "self", All: true, Failed: []string{name}})
	require.Empty(t, p.Decide(p.now), "this server cannot serve it")
	p.UpdateSelf(p.now, Announcement{ID: "self", All: true, Draining: true})
	p.other.Serves = nil
	p.announce()
	p.decides(StayAway, "stopping")
}

// Announcements that come late change nothing. Neither does a suspended server that
// announces worlds which it has lost.
func TestView_Late(t *testing.T) {
	t.Parallel()
	p := newPair(t)
	name := p.worldOf("self")
	p.other.Serves = []string{name}
	p.announce()
	p.announce()
	old := p.other
	p.other.Serves = nil
	p.announce()
	p.decides(Acquire, "free")
	old.Seq--
	p.Receive(p.now, old)
	p.decides(Acquire, "free")

	third := Announcement{ID: "third", Name: "third", All: true, Seq: 1, Serves: []string{name}}
	p.Receive(p.now, third)
	p.other.Serves = []string{name}
	p.announce()
	p.decides(StayAway, "served by third")
	third.Serves, third.Seq = nil, 2
	p.Receive(p.now, third)
	p.decides(StayAway, "served by other")
	p.Receive(p.now, Announcement{ID: "self", Seq: 9, Draining: true}) // its own echo
	require.False(t, p.self.Draining)
	p.now += forgetTimeout
	p.Decide(p.now)
	require.Len(t, p.servers, 1)
}

// A world that was removed, but that an announcement names which was under way, is forgotten: no share is
// kept for it. A world that this server would serve stays, and so does one that a server names.
func TestView_Removed(t *testing.T) {
	t.Parallel()
	p := newPair(t)
	p.other.Worlds, p.other.Serves = []string{"a", "b", "c"}, []string{"b"}
	p.AddWorld(p.now, "a")
	p.Acquired(p.now, "d")
	p.announce()
	p.RemoveWorld("c")
	p.announce()
	p.other.Worlds = nil
	p.heard(forgetTimeout)
	p.Decide(p.now)
	require.Equal(t, []string{"a", "b", "d"}, p.sortedWorlds())
	p.Released(p.now, "d", false)
	p.other.Serves = nil
	p.heard(forgetTimeout)
	p.Decide(p.now)
	require.Equal(t, []string{"a"}, p.sortedWorlds())
}

// A free world may be acquired at once by the first server for it, and later by the next one.
func TestView_MayAcquire(t *testing.T) {
	t.Parallel()
	p := newPair(t)
	p.heard(MinServerAge)
	first, second := p.worldOf("self"), p.worldOf("other")
	for _, name := range []string{first, second} {
		p.AddWorld(p.now, name)
		require.False(t, p.MayAcquire(p.now, name), "its lease has not been read")
		p.NoteHolder(p.now, name, "")
	}
	require.True(t, p.MayAcquire(p.now, first))
	require.False(t, p.MayAcquire(p.now, second))
	require.True(t, p.MayAcquire(p.now+AcquireDelay, second))
	require.False(t, p.MayAcquire(p.now, "unknown"))
	p.Acquired(p.now, first)
	require.False(t, p.MayAcquire(p.now, first))
	before := len(p.servers)
	p.MayAcquire(p.now+forgetTimeout, second)
	require.Len(t, p.servers, before, "a question forgets no server")
}

// Of several worlds one moves at a time, in the order of their names.
func TestView_OneAtATime(t *testing.T) {
	t.Parallel()
	p := newPair(t)
	for i := range 12 {
		p.Acquired(p.now, fmt.Sprintf("w%02d", i))
		p.other.Ready = append(p.other.Ready, fmt.Sprintf("w%02d", i))
	}
	p.heard(MinServerAge + MinTenureAge)
	var moves []string
	for range 12 {
		for _, d := range p.Decide(p.now) {
			if d.Action == HandOver {
				moves = append(moves, d.World)
				p.StartHandover(p.now, d.World)
				p.Released(p.now, d.World, false)
				p.now += time.Millisecond
				p.other.Serves = moves
				require.NotContains(t, fmt.Sprint(p.Decide(p.now)), HandOver.String()+" other")
				p.announce()
				break
			}
		}
	}
	require.Len(t, moves, 6)
	require.True(t, strings.Compare(moves[0], moves[5]) < 0)
}
