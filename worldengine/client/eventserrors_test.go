package client

import (
	"context"
	"fmt"
	"runtime"
	"strings"
	"testing"
	"time"

	natsserver "github.com/nats-io/nats-server/v2/server"
	"github.com/nats-io/nats.go"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"worldengine/worldengine/natsconn"
	"worldengine/worldengine/natstest"
	"worldengine/worldengine/wire"
)

// refusal is an error reply that does not say when to ask again.
func refusal(status string, code wire.Code) *nats.Msg {
	return &nats.Msg{
		Data:   ErrorBody(string(code), "no", nil),
		Header: nats.Header{wire.ErrorCodeHeader: {status}},
	}
}

// listing is a page with runs that have some events.
func listing(last int, runIDs ...string) *nats.Msg {
	rows := make([]string, len(runIDs))
	for i, id := range runIDs {
		rows[i] = fmt.Sprintf(`{"runId":%q,"status":"RUNNING","lastEventSeq":%d}`, id, last)
	}
	return &nats.Msg{Data: []byte(`{"runs":[` + strings.Join(rows, ",") + `]}`)}
}

func eventJSON(runID string, seq int) string {
	return fmt.Sprintf(`{"runId":%q,"runSeq":%d,"eventType":"RunStarted","persistedAt":%q}`,
		runID, seq, time.Now().UTC().Format(time.RFC3339Nano))
}

// serveRuns answers run.events by the run, and run.list with the runs as the last page.
func serveRuns(t *testing.T, c *Client, runs map[string]*nats.Msg, list *nats.Msg) {
	t.Helper()
	c.SetPace(time.Minute, 7, 100)
	answer := func(verb wire.Verb, of func(request string) *nats.Msg) {
		_, err := c.Conn.Subscribe(wire.Subject("main", verb), func(msg *nats.Msg) {
			reply := of(string(msg.Data))
			_ = msg.RespondMsg(&nats.Msg{Data: reply.Data, Header: reply.Header})
		})
		require.NoError(t, err)
	}
	answer(wire.RunList, func(request string) *nats.Msg {
		if strings.Contains(request, `"status"`) {
			return listing(0)
		}
		return list
	})
	answer(wire.RunEvents, func(request string) *nats.Msg {
		for id, reply := range runs {
			if strings.Contains(request, `"`+id+`"`) {
				return reply
			}
		}
		return refusal("404", wire.CodeUnknownRun)
	})
	require.NoError(t, c.Conn.Flush())
}

func eventsPage(last int, events ...string) *nats.Msg {
	return &nats.Msg{Data: fmt.Appendf(nil, `{"events":[%s],"lastEventSeq":%d}`,
		strings.Join(events, ","), last)}
}

// What asking again cannot mend is told: once of a run, and of the list as the last of all.
func TestEventsTellWhatAskingAgainCannotMend(t *testing.T) {
	c := start(t)
	good := eventsPage(1, eventJSON("good", 1))
	serveRuns(t, c, map[string]*nats.Msg{
		"refused": refusal("500", wire.CodeInternal), "broken": {Data: []byte("{")}, "good": good,
		"torn": eventsPage(3, eventJSON("torn", 1), eventJSON("torn", 3)),
	}, listing(3, "refused", "broken", "torn", "good"))
	var told []string
	for event, err := range c.Events(t.Context(), Follow{From: time.Now().Add(-time.Hour)}) {
		if err == nil {
			told = append(told, fmt.Sprint(event.RunID, " ", event.RunSeq))
			if event.RunID == "good" {
				break
			}
			continue
		}
		var lost *RunError
		require.ErrorAs(t, err, &lost)
		told = append(told, fmt.Sprint(lost.RunID, " lost behind ", lost.AfterSeq))
	}
	require.Equal(t, []string{
		"refused lost behind 0", "broken lost behind 0", "torn 1", "torn lost behind 1", "good 1",
	}, told)
	for _, err := range c.Events(t.Context(), Follow{RunID: "refused"}) {
		require.True(t, IsCode(err, wire.CodeInternal), "%v", err)
	}
}

func TestEventsEndWithAListThatIsRefused(t *testing.T) {
	c := start(t)
	serveRuns(t, c, nil, refusal("403", wire.CodeForbidden))
	ends := 0
	for _, err := range c.Events(t.Context(), Follow{}) {
		require.True(t, IsCode(err, wire.CodeForbidden), "%v", err)
		ends++
	}
	require.Equal(t, 1, ends)
}

// A message on the subject of a run that is no event of it says nothing about other runs.
func TestEventsGoOnBehindAMessageThatIsNoEvent(t *testing.T) {
	c := start(t)
	serveRuns(t, c, map[string]*nats.Msg{"good": eventsPage(1, eventJSON("good", 1))},
		listing(1, "good"))
	var told []string
	for event, err := range c.Events(t.Context(), Follow{From: time.Now().Add(-time.Hour)}) {
		if err != nil {
			told = append(told, err.Error()[:len("the events of run odd")])
			continue
		}
		told = append(told, fmt.Sprint(event.RunID, event.RunSeq))
		if event.RunSeq > 1 {
			break
		}
		for _, m := range [][2]string{
			{"odd", `{}`}, {"odd", "["}, {"odd", eventJSON("good", 2)},
			{"good", eventJSON("good", 2)},
		} {
			require.NoError(t, c.Conn.Publish(wire.EventSubject("main", "t", m[0]), []byte(m[1])))
		}
	}
	require.Equal(t, []string{"good1", "the events of run odd", "good2"}, told)
}

// Nobody is there when following begins; then each answer but the last of each kind asks to come
// again.
func TestEventsWaitForAServerThatIsAway(t *testing.T) {
	c := start(t)
	c.SetPace(time.Minute, 7, 100)
	c.Timeout = 50 * time.Millisecond
	away := []*nats.Msg{busy("503", "1"), busy("429", "90"), nil, busy("503", "")}
	answer := func(verb wire.Verb, last func(request string) *nats.Msg) {
		asked := map[string]int{}
		_, err := c.Conn.Subscribe(wire.Subject("main", verb), func(msg *nats.Msg) {
			kind := string(msg.Data[:min(len(msg.Data), 12)]) // up to the first member
			reply := last(string(msg.Data))
			if n := asked[kind]; n < len(away) {
				reply = away[n]
			}
			if asked[kind]++; reply != nil {
				_ = msg.RespondMsg(&nats.Msg{Data: reply.Data, Header: reply.Header})
			}
		})
		assert.NoError(t, err)
	}
	time.AfterFunc(100*time.Millisecond, func() {
		answer(wire.RunEvents, func(string) *nats.Msg {
			return eventsPage(1, eventJSON("good", 1))
		})
		answer(wire.RunList, func(request string) *nats.Msg {
			if strings.Contains(request, `"status"`) {
				return listing(0)
			}
			return listing(1, "good")
		})
	})
	for event, err := range c.Events(t.Context(), Follow{From: time.Now()}) {
		require.NoError(t, err)
		require.Equal(t, "good", event.RunID)
		break
	}
}

func TestEventsOfAUserWhoMayNotReadThem(t *testing.T) {
	c := may(t, "nothing", "runevents.>")
	for range 2 {
		ends := 0
		for _, err := range c.Events(t.Context(), Follow{}) {
			require.True(t, IsCode(err, codeDenied), "%v", err)
			ends++
		}
		require.Equal(t, 1, ends)
	}
}

// An iteration leaves nothing behind, however it ends. It is not parallel: it counts goroutines.
func TestEventsLeaveNothingBehind(t *testing.T) {
	c := &Client{Conn: natstest.Connect(t), World: "main", Timeout: 10 * time.Second}
	serveRuns(t, c, map[string]*nats.Msg{"good": eventsPage(1, eventJSON("good", 1))},
		listing(1, "good"))
	// subscribes to the inbox
	_, err := c.Request(t.Context(), wire.RunList, []byte(`{"status":""}`))
	require.NoError(t, err)
	subs, routines := c.Conn.NumSubscriptions(), runtime.NumGoroutine()
	what := Follow{From: time.Now().Add(-time.Hour)}
	for range 10 {
		for range c.Events(t.Context(), what) {
			break
		}
		ctx, cancel := context.WithCancel(t.Context())
		for _, err := range c.Events(ctx, what) {
			require.NoError(t, err)
			cancel()
		}
		cancel()
	}
	require.Equal(t, subs, c.Conn.NumSubscriptions())
	for runtime.NumGoroutine() > routines { // ends with the test's time where one is left
		runtime.Gosched()
	}

	ends := 0
	for _, err := range c.Events(t.Context(), what) {
		if ends++; err == nil {
			c.Conn.Close()
			continue
		}
		require.True(t, IsCode(err, codeConnection), "%v", err)
	}
	require.Equal(t, 2, ends)
}

// A client that the server does not let in any more is told so: by its events too.
func TestAClientWhoseRightsEndIsToldSo(t *testing.T) {
	t.Parallel()
	options := &natsserver.Options{
		Host: "127.0.0.1", Port: natsserver.RANDOM_PORT, NoLog: true, NoSigs: true,
		Username: "mayor", Password: "before",
	}
	server, err := natsserver.NewServer(options)
	require.NoError(t, err)
	server.Start()
	t.Cleanup(func() { server.Shutdown(); server.WaitForShutdown() })
	require.True(t, server.ReadyForConnections(20*time.Second))
	_, err = Connect(server.ClientURL(), Options{})
	require.True(t, IsCode(err, codeConnection), "%v", err)
	require.ErrorIs(t, err, nats.ErrAuthorization)

	login := natsconn.Options{User: "mayor", Password: "before", Inbox: "_INBOX"}
	c, err := Connect(server.ClientURL(), Options{Connection: login, NATS: []nats.Option{
		nats.ReconnectWait(time.Millisecond), nats.ReconnectJitter(0, 0),
	}})
	require.NoError(t, err)
	t.Cleanup(c.Close)
	c.Timeout = 30 * time.Second
	serveRuns(t, c, map[string]*nats.Msg{"good": eventsPage(1, eventJSON("good", 1))},
		listing(1, "good"))
	ended := false
	for _, err := range c.Events(t.Context(), Follow{From: time.Now().Add(-time.Hour)}) {
		if err == nil {
			changed := options.Clone()
			changed.Password = "after"
			require.NoError(t, server.ReloadOptions(changed))
			continue
		}
		ended = true
		require.True(t, IsCode(err, codeConnection), "%v", err)
		require.ErrorIs(t, err, nats.ErrAuthorization)
	}
	require.True(t, ended, "the events end with an error")
	_, err = c.Town(t.Context(), "t")
	require.ErrorIs(t, err, nats.ErrAuthorization)
	require.ErrorContains(t, err, "refuses its credentials")
}

func TestAWorldThatCannotBeIsNotConnectedTo(t *testing.T) {
	t.Parallel()
	for _, world := range []string{"a b", "a.b", ">", "*"} {
		_, err := Connect("127.0.0.1:1", Options{World: world})
		require.ErrorContains(t, err, "a world's name is", world)
	}
}
