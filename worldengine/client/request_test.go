package client

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"
	natsserver "github.com/nats-io/nats-server/v2/server"
	"github.com/nats-io/nats.go"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"worldengine/schemas"
	"worldengine/worldengine/internal/testkit/natstest"
	"worldengine/worldengine/messages"
	"worldengine/worldengine/wire"
)

// start starts a NATS server and returns a client of a world that nobody serves yet.
func start(t *testing.T) *Client {
	t.Helper()
	t.Parallel()
	nc := natstest.Connect(t, func(o *natsserver.Options) { o.MaxPayload = 4096 })
	return &Client{Conn: nc, World: "main", Timeout: 10 * time.Second}
}

// serve answers a verb: the n-th request, from 1, with answer(n); nil is no answer.
func serve(t *testing.T, c *Client, verb wire.Verb, answer func(n int64) *nats.Msg) *atomic.Int64 {
	t.Helper()
	asked := new(atomic.Int64)
	_, err := c.Conn.Subscribe(wire.Subject(c.World, verb), func(request *nats.Msg) {
		if reply := answer(asked.Add(1)); reply != nil {
			_ = request.RespondMsg(reply)
		}
	})
	require.NoError(t, err)
	require.NoError(t, c.Conn.Flush())
	return asked
}

// busy returns an error reply with a pause for a repetition, in milliseconds.
func busy(code, ms string) *nats.Msg {
	return &nats.Msg{
		Data: messages.ErrorBody("BUSY", "busy", nil),
		Header: nats.Header{
			wire.ErrorCodeHeader: {code}, wire.ErrorHeader: {"busy"}, wire.RetryAfterHeader: {ms},
		},
	}
}

// A request is repeated if the reply has a pause for that, unless it changes something and may have
// been carried out.
func TestRequest_Repeats(t *testing.T) {
	t.Parallel()
	done := func() *nats.Msg { return &nats.Msg{Data: []byte("done")} }
	for name, test := range map[string]struct {
		verb    wire.Verb
		replies []*nats.Msg // all of them are asked for
	}{
		"429 and 503":               {wire.Handoff, []*nats.Msg{busy("429", "1"), busy("503", "1"), done()}},
		"a put after a 429":         {wire.TownPut, []*nats.Msg{busy("429", "1"), done()}},
		"too long a pause":          {wire.Handoff, []*nats.Msg{busy("429", "60000")}},
		"no pause":                  {wire.Handoff, []*nats.Msg{busy("503", "")}},
		"503 that may have put":     {wire.TownPut, []*nats.Msg{busy("503", "1")}},
		"503 that may have patched": {wire.TownPatch, []*nats.Msg{busy("503", "1")}},
		"503 that may have paused":  {wire.ControlPause, []*nats.Msg{busy("503", "1")}},
		"409":                       {wire.Handoff, []*nats.Msg{busy("409", "1")}},
	} {
		t.Run(name, func(t *testing.T) {
			c := start(t)
			asked := serve(t, c, test.verb, func(n int64) *nats.Msg {
				return test.replies[min(int(n), len(test.replies))-1]
			})
			reply, err := c.Request(t.Context(), test.verb, nil)
			if last := test.replies[len(test.replies)-1]; last.Header == nil {
				require.NoError(t, err)
				require.Equal(t, "done", string(reply.Data))
			} else {
				require.True(t, IsCode(err, "BUSY"), "%v", err)
			}
			require.EqualValues(t, len(test.replies), asked.Load())
		})
	}
}

// A request outlasts a server that ends while it has the request, or says that it stops: another one
// takes over.
func TestRequest_ServerLeaves(t *testing.T) {
	t.Parallel()
	for name, last := range map[string]*nats.Msg{"silent": nil, "stopping": busy("503", "1")} {
		t.Run(name, func(t *testing.T) {
			c := start(t)
			c.Timeout = 20 * time.Second
			answer := func(reply *nats.Msg, then func()) {
				_, err := c.Conn.Subscribe(wire.Subject(c.World, wire.Handoff), func(request *nats.Msg) {
					assert.NoError(t, request.Sub.Unsubscribe())
					if reply != nil {
						assert.NoError(t, request.RespondMsg(reply))
					}
					then()
				})
				assert.NoError(t, err)
				assert.NoError(t, c.Conn.Flush())
			}
			answer(last, func() {
				time.AfterFunc(2300*time.Millisecond, func() {
					answer(&nats.Msg{Data: []byte("done")}, func() {})
				})
			})
			reply, err := c.Request(t.Context(), wire.Handoff, nil)
			require.NoError(t, err)
			require.Equal(t, "done", string(reply.Data))
		})
	}
}

// At the deadline, the error says why a handoff waits, with its run, although other attempts have no
// answer.
func TestRequest_Waits(t *testing.T) {
	t.Parallel()
	for _, code := range []wire.Code{
		wire.CodeInProgress, wire.CodePluginAbsent, wire.CodeTownPaused, wire.CodeWorldPaused,
	} {
		t.Run(string(code), func(t *testing.T) {
			c := start(t)
			var attempts atomic.Int64 // of a request
			serve(t, c, wire.Handoff, func(int64) *nats.Msg {
				if attempts.Add(1) != 2 {
					return nil
				}
				waits := busy("503", "100")
				waits.Data = messages.ErrorBody(string(code), "it waits", nil)
				waits.Header.Set(wire.RunIDHeader, "the-run")
				return waits
			})
			natstest.Patiently(t, 2*time.Second, func(within time.Duration) string {
				attempts.Store(0)
				c.Timeout = within
				_, err := c.Request(t.Context(), wire.Handoff, nil)
				if refused, ok := errors.AsType[*ReplyError](err); ok {
					require.EqualValues(t, code, refused.Code)
					require.Equal(t, "the-run", refused.RunID)
					return ""
				}
				return fmt.Sprint(err)
			})
		})
	}
}

// At the deadline, the error does not name a game that is back.
func TestExchange_GameIsBack(t *testing.T) {
	c := start(t)
	serve(t, c, wire.Handoff, func(int64) *nats.Msg { return nil })
	serve(t, c, wire.TownGet, func(n int64) *nats.Msg {
		var town Town
		town.PendingRunID = "the-run"
		if n == 1 {
			town.PluginAbsentSince = "2026-11-22T20:00:00Z"
		}
		data, err := json.Marshal(town)
		assert.NoError(t, err)
		return &nats.Msg{Data: data}
	})
	var told []string
	c.OnPaused = func(_ string, why *UnavailableError) { told = append(told, why.Code) }
	_, _, err := c.exchange(t.Context(), wire.Handoff, nil, sending{townID: "north"})
	require.True(t, IsCode(err, codeTimeout), "%v", err)
	require.Equal(t, []string{string(wire.CodePluginAbsent)}, told)
}

// Without an answer the error has a code, and a deadline of the caller is told from the client's.
func TestRequest_NoAnswer(t *testing.T) {
	c := start(t)
	requireCode := func(ctx context.Context, code, message string) {
		t.Helper()
		_, err := c.Request(ctx, wire.Handoff, nil)
		var unavailable *UnavailableError
		require.ErrorAs(t, err, &unavailable)
		require.Equal(t, code, unavailable.Code)
		require.ErrorContains(t, err, unavailable.Code+": "+message)
		require.Error(t, errors.Unwrap(err))
	}
	requireCode(t.Context(), "NO_RESPONDERS", "no server answers handoff for the world \"main\"")

	ctx, interrupt := context.WithCancel(t.Context())
	serve(t, c, wire.Handoff, func(int64) *nats.Msg { interrupt(); return nil })
	requireCode(ctx, "INTERRUPTED", "")
	ctx, cancel := context.WithTimeout(t.Context(), 30*time.Millisecond)
	requireCode(ctx, "TIMEOUT", "no answer to handoff before the deadline of its context")
	cancel()
	c.Timeout = 20 * time.Millisecond
	requireCode(t.Context(), "TIMEOUT", "no answer to handoff within 20ms; the request may have")
	c.Timeout = time.Minute
	c.Conn.Close()
	requireCode(t.Context(), "CONNECTION", "the connection is closed")
}

// The end of the context ends the pause before a repetition.
func TestRequest_PauseEndsWithContext(t *testing.T) {
	c := start(t)
	ctx, cancel := context.WithCancel(t.Context())
	serve(t, c, wire.Handoff, func(n int64) *nats.Msg {
		time.AfterFunc(time.Millisecond, cancel)
		return busy("429", "9000")
	})
	_, err := c.Request(ctx, wire.Handoff, nil)
	require.Error(t, err)
	require.Error(t, ctx.Err())
}

// An answer that comes while the client looks for the town's game ends the request.
func TestExchange_AnswerDuringLook(t *testing.T) {
	c := start(t)
	natstest.Patiently(t, 200*time.Millisecond, func(within time.Duration) string {
		c.Timeout = within
		first := make(chan *nats.Msg, 1)
		handoffs, err := c.Conn.Subscribe(wire.Subject(c.World, wire.Handoff), func(m *nats.Msg) {
			select {
			case first <- m:
			default:
			}
		})
		require.NoError(t, err)
		looks, err := c.Conn.Subscribe(wire.Subject(c.World, wire.TownGet), func(*nats.Msg) {
			_ = (<-first).Respond([]byte("done")) // and the look gets no answer
		})
		require.NoError(t, err)
		defer func() { _, _ = handoffs.Unsubscribe(), looks.Unsubscribe() }()
		_, doubt, err := c.exchange(t.Context(), wire.Handoff, nil, sending{townID: "north"})
		if err != nil || doubt {
			return fmt.Sprintf("doubt: %v, error: %v", doubt, err)
		}
		return ""
	})
}

// A request that waits on the server is repeated only if its answer is late.
func TestFirstInterval(t *testing.T) {
	t.Parallel()
	for _, c := range []struct{ remaining, wait, want time.Duration }{
		{30 * time.Second, 0, 2 * time.Second},
		{time.Second, 0, 500 * time.Millisecond},
		{35 * time.Second, 5 * time.Second, 7 * time.Second},
		{10 * time.Second, 5 * time.Second, 7 * time.Second},
		{6 * time.Second, 5 * time.Second, 5500 * time.Millisecond},
		{3 * time.Second, 5 * time.Second, 4 * time.Second}, // beyond the end: never
	} {
		assert.Equal(t, c.want, firstInterval(c.remaining, c.wait), "%+v", c)
	}
}

// A document in a request reaches the server as it is; another text is refused unless it is UTF-8.
func TestAsk_Texts(t *testing.T) {
	c := start(t)
	asked := make(chan string, 1)
	_, err := c.Conn.Subscribe(wire.Subject(c.World, wire.TownPut), func(m *nats.Msg) {
		asked <- string(m.Data)
		_ = m.Respond([]byte("{}"))
	})
	require.NoError(t, err)
	const document = "{\"a\":\"\xff\\u0061\",\"a\":1}"
	_, err = c.PutTownJSON(t.Context(), jsontext.Value(document), Put{})
	require.NoError(t, err)
	assert.Contains(t, <-asked, document)

	_, err = c.PutTownJSON(t.Context(), jsontext.Value(document), Put{Expected: "\xff"})
	require.ErrorContains(t, err, "the text is not UTF-8")
	_, err = c.Result(t.Context(), "key\xff", "")
	require.ErrorContains(t, err, "the text is not UTF-8")
}

func TestRequest_TooLarge(t *testing.T) {
	c := start(t)
	_, err := c.Request(t.Context(), wire.Handoff, []byte(strings.Repeat("x", 5000)))
	refused, ok := errors.AsType[*ReplyError](err)
	require.True(t, ok, "%v", err)
	assert.Equal(t, "PAYLOAD_TOO_LARGE (413): the request has 5000 bytes, this NATS server takes "+
		"4096", err.Error())
	assert.True(t, refused.Refused())
}

// may returns a client of a user who may not publish, or not subscribe, to some subjects.
func may(t *testing.T, publish, subscribe string) *Client {
	t.Helper()
	t.Parallel()
	nc := natstest.Connect(t, func(o *natsserver.Options) {
		o.Users = []*natsserver.User{{Username: "u", Permissions: &natsserver.Permissions{
			Publish:   &natsserver.SubjectPermission{Deny: []string{publish}},
			Subscribe: &natsserver.SubjectPermission{Deny: []string{subscribe}},
		}}}
		o.NoAuthUser = "u"
	})
	return &Client{Conn: nc, World: "main", Timeout: 20 * time.Second}
}

// A refusal of NATS explains why no answer came, unless it is of another subject.
func TestRequest_MayNot(t *testing.T) {
	t.Parallel()
	put := wire.Subject("main", wire.TownPut)
	for name, denied := range map[string][2]string{
		"publish": {put, "nothing"}, "read its inbox": {"nothing", "_INBOX.>"},
	} {
		t.Run(name, func(t *testing.T) {
			c := may(t, denied[0], denied[1])
			serve(t, c, wire.TownGet, func(int64) *nats.Msg { return nil })
			serve(t, c, wire.TownPut, func(int64) *nats.Msg { return &nats.Msg{} })
			for range 2 {
				c.Timeout = 20 * time.Second
				_, err := c.Request(t.Context(), wire.TownPut, nil)
				require.True(t, IsCode(err, codeDenied), "%v", err)
				require.ErrorIs(t, err, nats.ErrPermissionViolation)
				if denied[0] == put {
					c.Timeout = 100 * time.Millisecond
					_, err = c.Request(t.Context(), wire.TownGet, nil)
					require.True(t, IsCode(err, codeTimeout), "%v", err)
				}
			}
		})
	}
}

func TestReplyErrorOf(t *testing.T) {
	t.Parallel()
	assert.Nil(t, replyErrorOf(&nats.Msg{Data: []byte("{}")}))

	body := messages.ErrorBody("UNKNOWN_TOWN", "there is none",
		[]schemas.Violation{{Path: "/a", Message: "is b"}})
	got := replyErrorOf(&nats.Msg{Data: body, Header: nats.Header{wire.ErrorCodeHeader: {"404"}}})
	assert.Equal(t, &ReplyError{
		Status: 404, Code: "UNKNOWN_TOWN", Message: "there is none",
		Details: []schemas.Violation{{Path: "/a", Message: "is b"}},
	}, got)

	got = replyErrorOf(&nats.Msg{Header: nats.Header{wire.ErrorCodeHeader: {"x"},
		wire.ErrorHeader: {"oops"}}})
	assert.Equal(t, "UNKNOWN (500): oops", got.Error())
	assert.False(t, got.Refused())
}

// dated is a context with a deadline by a clock that was set after its timer was started.
type dated struct {
	context.Context
	at time.Time
}

func (d dated) Deadline() (time.Time, bool) { return d.at, true }

// If the clock was set since a caller's deadline was made, a request is still repeated with pauses
// until the context ends, and the client's timeout still bounds it.
func TestRequest_ClockIsSet(t *testing.T) {
	for name, at := range map[string]time.Duration{"forward": -time.Hour, "back": time.Hour} {
		t.Run(name, func(t *testing.T) {
			c := start(t)
			busyOnce := func(then *nats.Msg) func(int64) *nats.Msg {
				return func(n int64) *nats.Msg {
					if n == 1 {
						return busy("429", "1")
					}
					return then
				}
			}
			serve(t, c, wire.Handoff, busyOnce(&nats.Msg{Data: []byte("done")}))
			ctx := dated{t.Context(), time.Now().Add(at).Round(0)}
			reply, err := c.Request(ctx, wire.Handoff, nil)
			require.NoError(t, err)
			require.Equal(t, "done", string(reply.Data))

			asked := serve(t, c, wire.TownGet, busyOnce(nil))
			soon, cancel := context.WithTimeout(t.Context(), 100*time.Millisecond)
			defer cancel()
			_, err = c.Request(dated{soon, ctx.at}, wire.TownGet, nil)
			require.Error(t, err)
			require.Less(t, asked.Load(), int64(5))
			serve(t, c, wire.RunGet, func(int64) *nats.Msg { return nil })
			c.Timeout = 50 * time.Millisecond
			_, err = c.Request(ctx, wire.RunGet, nil) // ends
			require.True(t, IsCode(err, codeTimeout), "%v", err)
		})
	}
}

// A list is read page by page until its end, or until the iteration stops.
func TestClient_Alerts(t *testing.T) {
	c := start(t)
	asked := make(chan messages.AlertList, 9)
	_, err := c.Conn.Subscribe(wire.Subject("main", wire.AlertList), func(msg *nats.Msg) {
		var r messages.AlertList
		assert.NoError(t, json.Unmarshal(msg.Data, &r))
		asked <- r
		page := `{"alerts":[{"seq":9},{"seq":5}],"next":5}`
		if r.After == 5 {
			page = `{"alerts":[{"seq":3}]}`
		}
		assert.NoError(t, msg.Respond([]byte(page)))
	})
	require.NoError(t, err)
	list := func(most int) (seqs []uint64) {
		for alert, err := range c.Alerts(t.Context(), true) {
			require.NoError(t, err)
			if seqs = append(seqs, alert.Seq); len(seqs) == most {
				break
			}
		}
		return seqs
	}
	require.Equal(t, []uint64{9, 5, 3}, list(9))
	require.Equal(t, []uint64{9}, list(1))
	for _, after := range []uint64{0, 5, 0} {
		require.Equal(t, messages.AlertList{After: after, Limit: 200, Open: true}, <-asked)
	}
	require.Empty(t, asked)

	serve(t, c, wire.AlertAck, func(int64) *nats.Msg {
		return &nats.Msg{Data: []byte(`{"seq":9,"acknowledged":{"by":"ada"}}`)}
	})
	alert, err := c.AcknowledgeAlert(t.Context(), 9, "ada", "It was applied.")
	require.NoError(t, err)
	require.Equal(t, "ada", alert.Acknowledged.By)
}

// An answer that breaks the contract is an error: no JSON, a list that goes back, or events that
// break off.
func TestClient_InvalidAnswers(t *testing.T) {
	c := start(t)
	for verb, answer := range map[wire.Verb]string{
		wire.TownGet:   `{`,
		wire.TownList:  `{"towns":[{"townId":"b"}],"next":"b"}`,
		wire.RunEvents: `{"events":[],"lastEventSeq":4}`,
	} {
		serve(t, c, verb, func(int64) *nats.Msg { return &nats.Msg{Data: []byte(answer)} })
	}
	_, err := c.Town(t.Context(), "t")
	require.True(t, IsCode(err, codeInvalid), "%v", err)
	for _, err = range c.Towns(t.Context(), messages.TownList{}) {
	}
	require.ErrorContains(t, err, `the list comes back to "b"`)
	for _, err = range c.RunEvents(t.Context(), "r", 2) {
	}
	require.ErrorContains(t, err, "the events of run r break off at 2 of 4")
}

// EventList waits longer than the client's Timeout for commits, asks once, and passes errors on.
func TestClient_EventList(t *testing.T) {
	c := start(t)
	_, err := c.EventList(t.Context(), messages.EventListRequest{})
	require.True(t, IsCode(err, codeNoResponders), "%v", err)
	c.Timeout = 100 * time.Millisecond
	sub, err := c.Conn.Subscribe(wire.Subject("main", wire.EventList), func(msg *nats.Msg) {
		time.AfterFunc(5*c.Timeout, func() { assert.NoError(t, msg.Respond(commits("7", "").Data)) })
	})
	require.NoError(t, err)
	page, err := c.EventList(t.Context(), messages.EventListRequest{After: "1", WaitMs: 30_000})
	require.NoError(t, err)
	require.Equal(t, "7", page.Cursor)
	require.NoError(t, sub.Unsubscribe())
	c.Timeout = 10 * time.Second
	asked := serve(t, c, wire.EventList, func(int64) *nats.Msg {
		return refusal("400", wire.CodeInvalidCursor)
	})
	_, err = c.EventList(t.Context(), messages.EventListRequest{After: "9"})
	require.True(t, IsCode(err, wire.CodeInvalidCursor), "%v", err)
	require.EqualValues(t, 1, asked.Load())
}
