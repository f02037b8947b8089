package server_test

import (
	"fmt"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/stretchr/testify/require"

	"worldengine/runevents"
	"worldengine/schemas"
	"worldengine/worldengine/apply"
	"worldengine/worldengine/messages"
	"worldengine/worldengine/server"
	"worldengine/worldengine/wire"
)

// byPlugin binds all towns to plugins, with a policy that fits a test.
func byPlugin(config *server.Config) {
	config.Engine.Apply = apply.Plugin
	config.Engine.Plugin = apply.Policy{
		Deadline: 10 * time.Second, Attempts: 3, Backoff: 10 * time.Millisecond,
		Resend: 100 * time.Millisecond,
	}
}

// absentFor asks plugins with short attempts, with a policy for absent ones, and tells clients of
// none.
func absentFor(absent apply.Absent) func(*server.Config) {
	return func(c *server.Config) {
		c.Engine.PauseWait = time.Hour
		c.Engine.Apply = apply.Plugin
		c.Engine.Plugin = apply.Policy{
			Deadline: time.Second, Attempts: 3, Backoff: 10 * time.Millisecond, Resend: time.Second,
			Absent: absent,
		}
	}
}

// once asks an absent plugin in one attempt.
func once(c *server.Config) {
	absentFor(apply.AbsentFail)(c)
	c.Engine.Plugin.Attempts = 1
}

// askedOnce has commands fail that no plugin takes within a deadline. A plugin is asked once: a
// request that is on its way at the end may have arrived.
func askedOnce(deadline time.Duration) func(*server.Config) {
	return func(c *server.Config) {
		c.Engine.Plugin.Deadline, c.Engine.Plugin.Attempts = deadline, 1
		c.Engine.Plugin.Resend, c.Engine.Plugin.Absent = 2*deadline, apply.AbsentFail
	}
}

// game is a game server whose plugin applies each id once, as the protocol asks.
type game struct {
	t testing.TB

	mu      sync.Mutex
	asked   []*apply.Command
	applied map[string]int // how often each applyId changed the game
	changed chan struct{}
}

// host starts a plugin for all towns. answer returns the answer to a command that is asked for the
// times-th time, and whether to send it; the game has changed if it is "applied".
func host(
	t testing.TB, srv *server.Server, answer func(c *apply.Command, times int) (apply.Answer, bool),
) *game {
	t.Helper()
	g := &game{t: t, applied: map[string]int{}, changed: make(chan struct{}, 1024)}
	plugin := &client{t: t, nc: connected(t, srv.URL()), world: wire.DefaultWorld}
	plugin.answer("*", func(c *apply.Command, respond func(apply.Answer)) {
		g.mu.Lock()
		g.asked = append(g.asked, c)
		times := 0
		for _, before := range g.asked {
			if before.ApplyID == c.ApplyID {
				times++
			}
		}
		a, ok := answer(c, times)
		if a.Status == apply.Applied && g.applied[c.ApplyID] == 0 {
			g.applied[c.ApplyID]++
		}
		g.mu.Unlock()
		if ok {
			respond(a)
		}
		select {
		case g.changed <- struct{}{}:
		default: // it is full, so that until looks again
		}
	})
	return g
}

// answer has a plugin take the requests for a town token, and answer each as often as it likes.
func (c *client) answer(token string, take func(command *apply.Command, respond func(apply.Answer))) {
	c.t.Helper()
	_, err := c.nc.Subscribe(wire.ApplySubject(c.world, token), func(msg *nats.Msg) {
		command, err := apply.ParseCommand(msg.Data, schemas.Limits{})
		if err != nil {
			c.t.Errorf("not a command-apply.v1: %v", err)
			return
		}
		take(command, func(a apply.Answer) {
			data, err := a.MarshalWire()
			if err == nil {
				err = msg.Respond(data)
			}
			if err != nil && !c.nc.IsClosed() { // a request may come again when the test is over
				c.t.Errorf("an answer cannot be sent: %v", err)
			}
		})
	})
	require.NoError(c.t, err)
	require.NoError(c.t, c.nc.Flush())
}

// commands returns the commands of all requests so far.
func (g *game) commands() []*apply.Command {
	g.mu.Lock()
	defer g.mu.Unlock()
	return slices.Clone(g.asked)
}

// until waits until the plugin was asked so often.
func (g *game) until(times int) {
	g.t.Helper()
	for len(g.commands()) < times {
		select {
		case <-g.changed:
		case <-time.After(time.Minute):
			g.t.Fatalf("the plugin was asked %d times, not %d", len(g.commands()), times)
		}
	}
}

func agree(c *apply.Command, _ int) (apply.Answer, bool) { return apply.Done(c), true }

// agreeAfter agrees once release is closed, and is in progress until then.
func agreeAfter(release <-chan struct{}) func(*apply.Command, int) (apply.Answer, bool) {
	return func(c *apply.Command, _ int) (apply.Answer, bool) {
		select {
		case <-release:
			return apply.Done(c), true
		default:
			return apply.Later(c, apply.InProgress, 10*time.Millisecond), true
		}
	}
}

// requests returns the requests to the plugins of a world, which get no answer.
func (c *client) requests() <-chan *nats.Msg {
	c.t.Helper()
	asked := make(chan *nats.Msg, 1024)
	_, err := c.nc.ChanSubscribe(wire.ApplySubject(c.world, "*"), asked)
	require.NoError(c.t, err)
	require.NoError(c.t, c.nc.Flush())
	return asked
}

// answerLate answers "applied" to a command that was given up, and waits for the alert.
func (c *client) answerLate(command *nats.Msg) {
	c.t.Helper()
	parsed, err := apply.ParseCommand(command.Data, schemas.Limits{})
	require.NoError(c.t, err)
	late := apply.Done(parsed)
	answer, err := late.MarshalWire()
	require.NoError(c.t, err)
	require.NoError(c.t, command.Respond(answer))
	c.awaitAlert(runevents.PluginLateAnswer)
}

// alertsOf returns the codes and towns of the alerts, the oldest first.
func alertsOf(c *client) (told []string) {
	c.t.Helper()
	for _, alert := range reversed(c.alerts(members{"limit": 100}).Alerts) {
		told = append(told, fmt.Sprint(alert.Code, " ", alert.TownID))
	}
	return told
}

// awaitAlert waits for an alert of a code, and returns it.
func (c *client) awaitAlert(code runevents.AlertCode) (found messages.Alert) {
	c.t.Helper()
	eventually(c.t, func() bool {
		all := c.alerts(members{"limit": 100}).Alerts
		i := slices.IndexFunc(all, func(a messages.Alert) bool { return a.Code == code })
		if i >= 0 {
			found = all[i]
		}
		return i >= 0
	})
	return found
}

// requireAlerts waits for so many alerts, and compares their codes and towns.
func (c *client) requireAlerts(want ...string) {
	c.t.Helper()
	eventually(c.t, func() bool { return len(alertsOf(c)) >= len(want) })
	require.Equal(c.t, want, alertsOf(c))
}

func absentSince(c *client, townID string) string {
	c.t.Helper()
	return call[struct{ PluginAbsentSince string }](c, "town.get", about(townID)).PluginAbsentSince
}
