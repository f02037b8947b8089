package game

import (
	"sync"
	"sync/atomic"
	"testing"

	"github.com/nats-io/nats.go"
	"github.com/stretchr/testify/require"

	"worldengine/runevents/recent"
)

// A reply that arrives while its application is given up is late, and reported: it must not end in
// a mailbox that nobody reads.
func TestReplyToAnApplicationThatIsBeingGivenUpIsLate(t *testing.T) {
	t.Parallel()
	var late atomic.Int64
	inbox := &Inbox{
		prefix: "inbox.", unused: UnusedAnswers{Late: func(Identity, *nats.Msg) { late.Add(1) }},
		open: map[string]*Mailbox{}, ended: recent.NewMap[string, endedMailbox](maxLate),
	}
	const applications = 20_000
	for range applications {
		m := NewMailbox(Identity{TownID: "town-a"})
		inbox.open[m.token] = m
		var both sync.WaitGroup
		both.Go(func() { inbox.take(&nats.Msg{Subject: inbox.prefix + m.token + ".1"}) })
		both.Go(func() { inbox.Forget(m, true) })
		both.Wait()
	}
	require.EqualValues(t, applications, late.Load())
}

// A plugin answers each request once, even a repeated one; any further answer is another plugin's,
// whether it comes before the application's end or after.
func TestAnAnswerTooMany(t *testing.T) {
	t.Parallel()
	applied, inProgress := []byte(`{"status":"applied"}`), []byte(`{"status":"in-progress"}`)
	for _, row := range []struct {
		name    string
		asked   int      // requests of attempt 1
		before  [][]byte // the answers to it while the application goes on
		after   [][]byte // and afterwards
		doubled int
	}{
		{"each request is answered", 2, [][]byte{applied}, [][]byte{applied}, 0},
		{"two answers to one request", 1, [][]byte{applied, applied}, nil, 1},
		{"the second one comes later", 1, [][]byte{applied}, [][]byte{applied}, 1},
		{"three answers to two requests", 2, [][]byte{applied, applied}, [][]byte{applied}, 1},
		{"what does not say applied does not count", 1, [][]byte{inProgress, inProgress, applied},
			nil, 0},
	} {
		doubled := 0
		inbox := &Inbox{
			prefix: "inbox.", unused: UnusedAnswers{Double: func(Identity, *nats.Msg) {
				doubled++
			}},
			open: map[string]*Mailbox{}, ended: recent.NewMap[string, endedMailbox](maxLate),
		}
		m := NewMailbox(Identity{TownID: "town-a"})
		inbox.open[m.token] = m
		m.tally.of(1).asked = row.asked
		m.tally.of(2).asked = 1
		for _, data := range row.before {
			inbox.take(&nats.Msg{Subject: inbox.prefix + m.token + ".1", Data: data})
		}
		inbox.Forget(m, false)
		for _, data := range row.after {
			inbox.take(&nats.Msg{Subject: inbox.prefix + m.token + ".1", Data: data})
		}
		require.Equal(t, row.doubled, doubled, row.name)
		inbox.take(&nats.Msg{Subject: inbox.prefix + m.token + ".2", Data: applied})
		require.Equal(t, row.doubled, doubled, "another attempt has its own count")
	}
}
