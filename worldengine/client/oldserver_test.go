package client

import (
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/go-json-experiment/json"
	"github.com/nats-io/nats.go"
	"github.com/stretchr/testify/require"

	"worldengine/runevents"
	"worldengine/worldengine/natstest"
	"worldengine/worldengine/wire"
)

// oldServer answers as a server does that tells no marks. Each of its runs has two events.
type oldServer struct {
	t  *testing.T
	c  *Client
	mu sync.Mutex
	// runs are the runs by when they began, and clock is when the last one did.
	runs  []oldRun
	clock time.Time
	// listed counts the runs of the last list.
	listed int
}

type oldRun struct {
	id    string
	began time.Time
}

// event returns an event of a run as it is stored.
func (r oldRun) event(seq int) string {
	kind := []runevents.EventType{runevents.RunStarted, runevents.RunCompleted}[seq-1]
	return fmt.Sprintf(`{"runId":%q,"runSeq":%d,"eventType":%q,"persistedAt":%q}`, r.id, seq, kind,
		r.began.Format(time.RFC3339Nano))
}

// serveOld answers run.list and run.events.
func serveOld(t *testing.T) *oldServer {
	t.Helper()
	c := &Client{Conn: natstest.Connect(t), World: "main", Timeout: 10 * time.Second}
	s := &oldServer{t: t, c: c, clock: time.Now().UTC().Truncate(time.Second)}
	c.SetPace(time.Minute, 7, 10_000)
	for verb, answer := range map[wire.Verb]func([]byte) string{
		wire.RunList: s.list, wire.RunEvents: s.events,
	} {
		_, err := c.Conn.Subscribe(wire.Subject("main", verb), func(msg *nats.Msg) {
			_ = msg.Respond([]byte(answer(msg.Data)))
		})
		require.NoError(t, err)
	}
	return s
}

// list answers run.list: one page, of the runs that began at a time or later.
func (s *oldServer) list(request []byte) string {
	s.mu.Lock()
	defer s.mu.Unlock()
	var of runList
	require.NoError(s.t, json.Unmarshal(request, &of))
	var rows []string
	for _, run := range s.runs {
		if of.Order == "oldest" && !run.began.Before(of.From) {
			rows = append(rows, fmt.Sprintf(`{"runId":%q,"status":"COMPLETED","lastEventSeq":2}`,
				run.id))
		}
	}
	s.listed = len(rows)
	return `{"runs":[` + strings.Join(rows, ",") + `]}`
}

// events answers run.events.
func (s *oldServer) events(request []byte) string {
	s.mu.Lock()
	defer s.mu.Unlock()
	var of runEvents
	require.NoError(s.t, json.Unmarshal(request, &of))
	at := slices.IndexFunc(s.runs, func(r oldRun) bool { return r.id == of.RunID })
	require.GreaterOrEqual(s.t, at, 0, of.RunID)
	var events []string
	for seq := int(of.AfterSeq) + 1; seq <= 2; seq++ {
		events = append(events, s.runs[at].event(seq))
	}
	return `{"events":[` + strings.Join(events, ",") + `],"lastEventSeq":2}`
}

// begin has so many runs begin and end, one each ten seconds of the server's clock, and publishes
// their events unless they are lost.
func (s *oldServer) begin(count int, lost bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for range count {
		s.clock = s.clock.Add(10 * time.Second)
		run := oldRun{fmt.Sprintf("run-%d", len(s.runs)), s.clock}
		s.runs = append(s.runs, run)
		for seq := 1; seq <= 2 && !lost; seq++ {
			subject := wire.EventSubject("main", "town", run.id)
			require.NoError(s.t, s.c.Conn.Publish(subject, []byte(run.event(seq))))
		}
	}
}

// A server that tells no marks has what is remembered bounded by the time of its events: what ended
// is forgotten, not yielded again, and not asked for again after a loss.
func TestEventsOfAServerWithoutMarksAreForgotten(t *testing.T) {
	t.Parallel()
	s := serveOld(t)
	s.begin(30, true) // they are there before
	last := map[string]int64{}
	read, known := 0, 0
	var f *follower
	f = s.c.follower(t.Context(), Follow{From: s.clock.Add(-time.Hour)},
		func(event Event, err error) bool {
			require.NoError(t, err)
			require.Equal(t, last[event.RunID]+1, event.RunSeq, "of %s: no gap and no double",
				event.RunID)
			last[event.RunID] = event.RunSeq
			read++
			switch known = max(known, len(f.known)); read {
			case 2 * 30:
				s.begin(500, false)
			case 2 * 530:
				s.begin(5, true)
				f.seen.dropped-- // as where messages were lost
			case 2 * 535:
				s.begin(500, false)
			case 2 * 1035:
				return false
			}
			return true
		})
	require.ErrorIs(t, f.run(), errStopped)
	require.Len(t, last, 1035)
	require.Less(t, known, 80, "runs of which it is remembered what was yielded")
	require.Less(t, s.listed, 80, "runs that are listed again after a loss")
}
