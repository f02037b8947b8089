package client

import (
	"context"
	"fmt"
	"runtime"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/go-json-experiment/json"
	natsserver "github.com/nats-io/nats-server/v2/server"
	"github.com/nats-io/nats.go"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"worldengine/worldengine/internal/kit/natsconn"
	"worldengine/worldengine/internal/testkit/natstest"
	"worldengine/worldengine/messages"
	"worldengine/worldengine/wire"
)

// refusal returns an error reply without a pause for a repetition.
func refusal(status string, code wire.Code) *nats.Msg {
	return &nats.Msg{
		Data:   messages.ErrorBody(string(code), "no", nil),
		Header: nats.Header{wire.ErrorCodeHeader: {status}},
	}
}

// commits returns a page of event.list, with a cursor and further members.
func commits(cursor, members string, commits ...string) *nats.Msg {
	return &nats.Msg{Data: fmt.Appendf(nil, `{"cursor":%q%s,"commits":[%s]}`, cursor, members,
		strings.Join(commits, ","))}
}

// commitJSON is a commit with one event.
func commitJSON(seq int, runID string) string {
	return fmt.Sprintf(`{"cursor":"%d","at":"2026-02-16T10:00:00.000Z","townId":"t",`+
		`"cause":"appended","runId":%q,"events":[{"runId":%q,"runSeq":1}]}`, seq, runID, runID)
}

// serveCommits answers event.list with pages, one after another, and then with the last one.
func serveCommits(t *testing.T, c *Client, pages ...*nats.Msg) {
	t.Helper()
	serve(t, c, wire.EventList, func(n int64) *nats.Msg {
		page := pages[min(int(n), len(pages))-1]
		if page == nil {
			return nil
		}
		return &nats.Msg{Data: page.Data, Header: page.Header}
	})
}

// Following goes on although nobody answers at first, each cursor is first refused, and one request
// gets no answer.
func TestCommits_ServerAway(t *testing.T) {
	c := start(t)
	c.Timeout = 50 * time.Millisecond
	time.AfterFunc(100*time.Millisecond, func() {
		asked := map[string]int{}
		_, err := c.Conn.Subscribe(wire.Subject("main", wire.EventList), func(msg *nats.Msg) {
			var r messages.EventListRequest
			assert.NoError(t, json.Unmarshal(msg.Data, &r))
			seq, err := strconv.Atoi(r.After)
			assert.NoError(t, err)
			reply := commits(fmt.Sprint(seq+1), "", commitJSON(seq+1, "run"))
			switch asked[r.After]++; asked[r.After] {
			case 1:
				reply = busy("503", "1")
			case 2:
				reply = busy("429", "90")
			case 3:
				if seq == 1 { // the client waits 5 s for this answer
					return
				}
			}
			assert.NoError(t, msg.RespondMsg(&nats.Msg{Data: reply.Data, Header: reply.Header}))
		})
		assert.NoError(t, err)
	})
	next := 1
	for commit, err := range c.Commits(t.Context(), Follow{After: "0"}) {
		require.NoError(t, err)
		require.Equal(t, strconv.Itoa(next), commit.Cursor)
		if next++; next == 4 {
			break
		}
	}
}

// Following ends when no commit has come for a time, or for no time at the end of the log.
func TestCommits_Idle(t *testing.T) {
	c := start(t)
	serveCommits(t, c, commits("1", "", commitJSON(1, "first")),
		commits("2", "", commitJSON(2, "second")), commits("2", ""))
	for _, idle := range []time.Duration{20 * time.Millisecond, 1} {
		cursor := ""
		for commit, err := range c.Commits(t.Context(), Follow{After: "0", Idle: idle}) {
			require.NoError(t, err)
			cursor = commit.Cursor
		}
		require.Contains(t, []string{"2", ""}, cursor, "the second time nothing comes")
	}
}

// Each loss is yielded, and the next commits follow.
func TestEvents_Losses(t *testing.T) {
	c := start(t)
	serveCommits(t, c, commits("5", `,"gap":true`, commitJSON(5, "first")),
		commits("7", `,"gap":true`, `{"cursor":"6","damaged":true}`, commitJSON(7, "second")),
		commits("8", "", `{"cursor":"8","events":[{"runId":5}]}`),
		commits("9", "", commitJSON(9, "third")))
	var got []string
	for event, err := range c.Events(t.Context(), Follow{After: "0"}) {
		if err == nil {
			got = append(got, event.TownID+" "+event.Cursor+" "+event.RunID)
			if event.RunID == "third" {
				break
			}
			continue
		}
		var lost *LossError
		require.ErrorAs(t, err, &lost)
		got = append(got, lost.Error())
	}
	require.Equal(t, []string{
		"t 5 first", "commits between 5 and 7 are not shown: the log no longer keeps all of them",
		"commits between 5 and 6 are not shown: the commit cannot be read", "t 7 second",
		got[4], "t 9 third",
	}, got, "the oldest that is kept is no gap")
	require.Contains(t, got[4], "commits between 8 and 8 are not shown: INVALID_ANSWER")
}

// A refusal, of the server or of NATS, is the only error and the last.
func TestEvents_Refused(t *testing.T) {
	t.Parallel()
	ends := func(t *testing.T, c *Client, code wire.Code) {
		t.Helper()
		ends := 0
		for _, err := range c.Events(t.Context(), Follow{}) {
			require.True(t, IsCode(err, code), "%v", err)
			ends++
		}
		require.Equal(t, 1, ends)
	}
	t.Run("server", func(t *testing.T) {
		c := start(t)
		serveCommits(t, c, commits("1", ""), refusal("403", wire.CodeForbidden))
		ends(t, c, wire.CodeForbidden)
	})
	t.Run("NATS", func(t *testing.T) {
		ends(t, may(t, wire.Subject("main", wire.EventList), "nothing"), codeDenied)
	})
}

// An iteration leaves nothing behind, however it ends. It is not parallel: it counts goroutines.
func TestCommits_Goroutines(t *testing.T) {
	c := &Client{Conn: natstest.Connect(t), World: "main", Timeout: 10 * time.Second}
	serveCommits(t, c, commits("1", "", commitJSON(1, "run")))
	_, err := c.Request(t.Context(), wire.EventList, nil) // subscribes to the inbox
	require.NoError(t, err)
	subs, routines := c.Conn.NumSubscriptions(), runtime.NumGoroutine()
	for range 10 {
		for range c.Events(t.Context(), Follow{}) {
			break
		}
		ctx, cancel := context.WithCancel(t.Context())
		for _, err := range c.Events(ctx, Follow{}) {
			require.NoError(t, err)
			cancel()
		}
		cancel()
	}
	require.Equal(t, subs, c.Conn.NumSubscriptions())
	for runtime.NumGoroutine() > routines { // ends with the time of the test if one is left
		runtime.Gosched()
	}

	var last error
	for _, err := range c.Events(t.Context(), Follow{}) {
		last = err
		c.Conn.Close()
	}
	require.True(t, IsCode(last, codeConnection), "%v", last)
}

// After the server has revoked a client's credentials, its calls fail with that error, and its events
// end with it.
func TestClient_RightsEnd(t *testing.T) {
	t.Parallel()
	options := &natsserver.Options{
		Host: "127.0.0.1", Port: natsserver.RANDOM_PORT, NoLog: true, NoSigs: true,
		Username: "mayor", Password: "before",
	}
	server, err := natsserver.NewServer(options)
	require.NoError(t, err)
	server.Start()
	t.Cleanup(func() { server.Shutdown(); server.WaitForShutdown() })
	require.True(t, server.ReadyForConnections(time.Minute))
	_, err = Connect(server.ClientURL(), Options{})
	require.True(t, IsCode(err, codeConnection), "%v", err)
	require.ErrorIs(t, err, nats.ErrAuthorization)

	login := natsconn.Options{User: "mayor", Password: "before", Inbox: "_INBOX"}
	c, err := Connect(server.ClientURL(), Options{Connection: login, NATS: []nats.Option{
		nats.ReconnectWait(time.Millisecond), nats.ReconnectJitter(0, 0),
	}})
	require.NoError(t, err)
	t.Cleanup(c.Close)
	serveCommits(t, c, commits("1", "", commitJSON(1, "run")), nil)
	ended := false
	for _, err := range c.Events(t.Context(), Follow{After: "0"}) {
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

func TestConnect_NoWorld(t *testing.T) {
	t.Parallel()
	for _, world := range []string{"a b", "a.b", ">", "*"} {
		_, err := Connect("127.0.0.1:1", Options{World: world})
		require.ErrorContains(t, err, "a world's name is", world)
	}
}
