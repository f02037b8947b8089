package client_test

import (
	"context"
	"fmt"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"worldengine/handoff"
	"worldengine/schemas"
	"worldengine/worldengine/client"
	"worldengine/worldengine/internal/core/apply"
	"worldengine/worldengine/internal/core/town"
	"worldengine/worldengine/internal/core/town/towntest"
	"worldengine/worldengine/internal/serve/server"
	"worldengine/worldengine/internal/testkit/natstest"
	"worldengine/worldengine/messages"
	"worldengine/worldengine/wire"
)

// proxy joins a world that forwards handoff and result.get to the real one. change may change a reply,
// or lose it.
func proxy(
	t *testing.T, w *world, c *client.Client, name string,
	change func(verb wire.Verb, reply *nats.Msg) *nats.Msg,
) *client.Client {
	t.Helper()
	joined := w.join(name)
	for _, verb := range []wire.Verb{wire.Handoff, wire.ResultGet} {
		_, err := joined.Conn.Subscribe(wire.Subject(name, verb), func(msg *nats.Msg) {
			reply, err := c.Request(context.Background(), verb, msg.Data)
			if err != nil {
				return
			}
			if reply = change(verb, reply); reply != nil {
				_ = msg.RespondMsg(&nats.Msg{Data: reply.Data, Header: reply.Header})
			}
		})
		require.NoError(t, err)
	}
	require.NoError(t, joined.Conn.Flush())
	return joined
}

// If an answer is lost, or is a 503 although the handoff is stored, the next attempt of the same call is
// a duplicate: Send returns the first result.
func TestSend_FirstAnswerIsLost(t *testing.T) {
	t.Parallel()
	w := serve(t)
	c := w.join("")
	heldBack := &nats.Msg{
		Data: messages.ErrorBody(string(wire.CodeTownPaused), "held back", nil),
		Header: nats.Header{
			wire.ErrorCodeHeader: {"503"}, wire.RetryAfterHeader: {"1"},
		},
	}
	for name, first := range map[string]*nats.Msg{"lost": nil, "held": heldBack} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			asked := 0
			joined := proxy(t, w, c, name, func(verb wire.Verb, reply *nats.Msg) *nats.Msg {
				if verb == wire.Handoff {
					asked++
				}
				if verb == wire.Handoff && asked == 1 {
					return first
				}
				return reply
			})
			found(t, c, name)
			got, err := joined.Send(t.Context(), talk(t, c, name))
			require.NoError(t, err)
			require.Equal(t, handoff.Executed, got.Status())
			require.Equal(t, handoff.Duplicate, got.Duplicate.Status())
			require.Equal(t, got.Result.ResultID,
				*got.Duplicate.Result.Evaluation.DuplicateCheck.DuplicateOf)
		})
	}
}

// The caller of a handoff for a paused town is told of the pause, and gets the result after it.
func TestSend_PausedTown(t *testing.T) {
	t.Parallel()
	c := serve(t).join("")
	found(t, c, "t")
	pause := func(verb wire.Verb) {
		_, err := c.Request(context.Background(), verb,
			[]byte(`{"townId":"t","actorId":"ada","reason":"a festival"}`))
		require.NoError(t, err)
	}
	pause(wire.ControlPause)
	h := talk(t, c, "t")
	natstest.Patiently(t, 3*time.Second, func(within time.Duration) string {
		short, cancel := context.WithTimeout(t.Context(), within)
		defer cancel()
		_, err := c.Send(short, h)
		if client.IsCode(err, "TOWN_PAUSED") {
			require.ErrorContains(t, err, `"t" is paused by ada`)
			return ""
		}
		return fmt.Sprint(err)
	})

	var told sync.Once
	c.OnPaused = func(townID string, why *client.UnavailableError) {
		assert.Equal(t, "t", townID)
		assert.Equal(t, "TOWN_PAUSED", why.Code)
		told.Do(func() { pause(wire.ControlResume) })
	}
	got, err := c.Send(t.Context(), h)
	require.NoError(t, err)
	require.Contains(t, []handoff.Status{handoff.Executed, handoff.Duplicate}, got.Status(),
		"the first call's handoff was judged when the pause ended, or its key is free")
}

// The caller of a handoff is told that the town's game is absent, and gets the result when it is back.
func TestSend_GameAway(t *testing.T) {
	t.Parallel()
	c := serve(t, func(c *server.Config) { c.Engine.PauseTimeout = 100 * time.Millisecond }).join("")
	for _, townID := range []string{"t", "u"} {
		state := towntest.Threatened(func(s *town.Snapshot) { s.TownID = townID })
		_, err := c.PutTown(t.Context(), state.Snapshot, client.Put{Apply: "plugin"})
		require.NoError(t, err)
	}
	natstest.Patiently(t, time.Second, func(within time.Duration) string {
		short, cancel := context.WithTimeout(t.Context(), within)
		defer cancel()
		_, err := c.Send(short, talk(t, c, "u"))
		if (client.IsCode(err, wire.CodePluginAbsent) || client.IsCode(err, wire.CodeInProgress)) &&
			strings.Contains(err.Error(), `"u" has had no plugin since`) {
			return ""
		}
		return fmt.Sprint(err)
	})

	var told sync.Once
	c.OnPaused = func(townID string, why *client.UnavailableError) {
		assert.Equal(t, "t PLUGIN_ABSENT", townID+" "+why.Code)
		told.Do(func() { playPlugin(t, c) })
	}
	got, err := c.Send(t.Context(), talk(t, c, "t"))
	require.NoError(t, err)
	require.Equal(t, handoff.Executed, got.Status())
}

// playPlugin applies the commands of all towns, until the client is closed.
func playPlugin(t *testing.T, c *client.Client) {
	t.Helper()
	_, err := c.Conn.Subscribe(wire.ApplySubject(c.World, "*"), func(msg *nats.Msg) {
		command, err := apply.ParseCommand(msg.Data, schemas.Limits{})
		if !assert.NoError(t, err) {
			return
		}
		done := apply.Done(command)
		answer, err := done.MarshalWire()
		assert.NoError(t, err)
		assert.NoError(t, msg.Respond(answer))
	})
	assert.NoError(t, err)
}
