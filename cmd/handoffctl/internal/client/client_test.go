package client

import (
	"context"
	"errors"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	natsserver "github.com/nats-io/nats-server/v2/server"
	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/micro"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"worldengine/schemas"
	"worldengine/worldengine"
)

// start starts a NATS server and returns a client of a world that nobody serves yet.
func start(t *testing.T) *Client {
	t.Helper()
	t.Parallel()
	ns, err := natsserver.NewServer(&natsserver.Options{
		Host: "127.0.0.1", Port: natsserver.RANDOM_PORT, NoSigs: true, MaxPayload: 4096,
	})
	require.NoError(t, err)
	ns.Start()
	t.Cleanup(func() { ns.Shutdown(); ns.WaitForShutdown() })
	require.True(t, ns.ReadyForConnections(10*time.Second))
	nc, err := nats.Connect(ns.ClientURL())
	require.NoError(t, err)
	t.Cleanup(nc.Close)
	return &Client{Conn: nc, World: "main", Timeout: 10 * time.Second}
}

// serve answers a verb: the n-th request, from 1, with answer(n); nil is no answer.
func serve(t *testing.T, c *Client, verb string, answer func(n int64) *nats.Msg) *atomic.Int64 {
	t.Helper()
	asked := new(atomic.Int64)
	_, err := c.Conn.Subscribe(worldengine.Subject(c.World, verb), func(request *nats.Msg) {
		if reply := answer(asked.Add(1)); reply != nil {
			_ = request.RespondMsg(reply)
		}
	})
	require.NoError(t, err)
	require.NoError(t, c.Conn.Flush())
	return asked
}

// busy is an error reply that asks to be asked again in ms milliseconds.
func busy(code, ms string) *nats.Msg {
	return &nats.Msg{
		Data: ErrorBody("BUSY", "busy", nil),
		Header: nats.Header{
			micro.ErrorCodeHeader: {code}, micro.ErrorHeader: {"busy"}, worldengine.RetryAfterHeader: {ms},
		},
	}
}

func TestRequestAsksAgainWhenItIsAskedTo(t *testing.T) {
	c := start(t)
	asked := serve(t, c, Handoff, func(n int64) *nats.Msg {
		switch n {
		case 1:
			return busy("429", "1")
		case 2:
			return busy("503", "1")
		}
		return &nats.Msg{Data: []byte("done")}
	})
	reply, err := c.Request(t.Context(), Handoff, nil)
	require.NoError(t, err)
	assert.Equal(t, "done", string(reply.Data))
	assert.EqualValues(t, 3, asked.Load())
}

func TestRequestDoesNotAskAgain(t *testing.T) {
	for name, test := range map[string]struct {
		verb  string
		reply *nats.Msg
	}{
		"after a pause that is too long":      {Handoff, busy("429", "60000")},
		"when it is not told when":            {Handoff, busy("503", "")},
		"after a 503 that may have put":       {TownPut, busy("503", "1")},
		"after a 503 that may have patched":   {TownPatch, busy("503", "1")},
		"after a 503 that may have paused":    {ControlPause, busy("503", "1")},
		"after what asking again cannot mend": {Handoff, busy("409", "1")},
	} {
		t.Run(name, func(t *testing.T) {
			c := start(t)
			asked := serve(t, c, test.verb, func(int64) *nats.Msg { return test.reply })
			_, err := c.Request(t.Context(), test.verb, nil)
			var refused *ReplyError
			require.ErrorAs(t, err, &refused)
			assert.Equal(t, "BUSY", refused.Code)
			assert.EqualValues(t, 1, asked.Load())
		})
	}
}

func TestRequestRepeatsATownPutAfterA429(t *testing.T) {
	c := start(t)
	serve(t, c, TownPut, func(n int64) *nats.Msg {
		if n == 1 {
			return busy("429", "1")
		}
		return &nats.Msg{}
	})
	_, err := c.Request(t.Context(), TownPut, nil)
	assert.NoError(t, err)
}

func TestRequestSaysWhyNoAnswerCame(t *testing.T) {
	c := start(t)
	code := func(ctx context.Context, body []byte) string {
		_, err := c.Request(ctx, Handoff, body)
		var unavailable *UnavailableError
		require.ErrorAs(t, err, &unavailable)
		assert.Contains(t, err.Error(), unavailable.Code+": ")
		assert.Error(t, errors.Unwrap(err))
		return unavailable.Code
	}
	assert.Equal(t, "NO_RESPONDERS", code(t.Context(), nil))

	ctx, cancel := context.WithCancel(t.Context())
	serve(t, c, Handoff, func(int64) *nats.Msg { cancel(); return nil })
	assert.Equal(t, "INTERRUPTED", code(ctx, nil))
	c.Timeout = 20 * time.Millisecond
	assert.Equal(t, "TIMEOUT", code(t.Context(), nil))
	c.Conn.Close()
	assert.Equal(t, "CONNECTION", code(t.Context(), nil))
}

func TestRequestEndsItsPauseWithItsContext(t *testing.T) {
	c := start(t)
	ctx, cancel := context.WithCancel(t.Context())
	serve(t, c, Handoff, func(n int64) *nats.Msg {
		time.AfterFunc(time.Millisecond, cancel)
		return busy("429", "9000")
	})
	_, err := c.Request(ctx, Handoff, nil)
	assert.Error(t, err)
	assert.Error(t, ctx.Err())
}

func TestAPayloadThatNATSDoesNotTakeIsRefused(t *testing.T) {
	c := start(t)
	_, err := c.Request(t.Context(), Handoff, []byte(strings.Repeat("x", 5000)))
	var refused *ReplyError
	require.ErrorAs(t, err, &refused)
	assert.Equal(t, "PAYLOAD_TOO_LARGE (413): the request has 5000 bytes, this NATS server takes 4096", err.Error())
	assert.True(t, refused.Refused())
	assert.Contains(t, string(refused.Body), `"code":"PAYLOAD_TOO_LARGE"`)
}

func TestReplyErrorOf(t *testing.T) {
	t.Parallel()
	assert.Nil(t, ReplyErrorOf(&nats.Msg{Data: []byte("{}")}))

	body := ErrorBody("UNKNOWN_TOWN", "there is none", []schemas.Violation{{Path: "/a", Message: "is b"}})
	got := ReplyErrorOf(&nats.Msg{Data: body, Header: nats.Header{micro.ErrorCodeHeader: {"404"}}})
	assert.Equal(t, &ReplyError{
		Status: 404, Code: "UNKNOWN_TOWN", Message: "there is none", Body: body,
		Details: []schemas.Violation{{Path: "/a", Message: "is b"}},
	}, got)

	got = ReplyErrorOf(&nats.Msg{Header: nats.Header{micro.ErrorCodeHeader: {"x"}, micro.ErrorHeader: {"oops"}}})
	assert.Equal(t, "UNKNOWN (500): oops", got.Error())
	assert.False(t, got.Refused())
	assert.JSONEq(t, string(ErrorBody("UNKNOWN", "the server replied with 500 and no body", nil)), string(got.Body))
}
