package server_test

import (
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/stretchr/testify/require"

	"worldengine/runevents"
	"worldengine/schemas"
	"worldengine/worldengine/apply"
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

// game is a game server whose plugin applies each id once, as the protocol asks, and answers as
// told.
type game struct {
	t  testing.TB
	nc *nats.Conn

	mu      sync.Mutex
	asked   []*apply.Command
	applied map[string]int // how often each applyId changed the game
	changed chan struct{}
	answer  func(c *apply.Command, times int) (apply.Answer, bool)
}

// host starts a plugin for all towns. answer says what to answer to a command that is asked for the
// times-th time, and whether to answer at all; the game has changed when it says applied.
func host(
	t testing.TB, srv *server.Server, answer func(c *apply.Command, times int) (apply.Answer, bool),
) *game {
	t.Helper()
	nc, err := nats.Connect(srv.URL())
	require.NoError(t, err)
	t.Cleanup(nc.Close)
	g := &game{t: t, nc: nc, applied: map[string]int{}, changed: make(chan struct{}, 1024),
		answer: answer}
	_, err = nc.Subscribe(wire.ApplySubject(wire.DefaultWorld, "*"), g.take)
	require.NoError(t, err)
	require.NoError(t, nc.Flush())
	return g
}

func (g *game) take(msg *nats.Msg) {
	c, err := apply.ParseCommand(msg.Data, schemas.Limits{})
	if err != nil {
		g.t.Errorf("not a command-apply.v1: %v", err)
		return
	}
	g.mu.Lock()
	g.asked = append(g.asked, c)
	times := 0
	for _, before := range g.asked {
		if before.ApplyID == c.ApplyID {
			times++
		}
	}
	a, ok := g.answer(c, times)
	if a.Status == apply.Applied && g.applied[c.ApplyID] == 0 {
		g.applied[c.ApplyID]++
	}
	g.mu.Unlock()
	if ok {
		data, err := a.MarshalWire()
		if err != nil {
			g.t.Errorf("an answer cannot be written: %v", err)
		}
		_ = msg.Respond(data)
	}
	select {
	case g.changed <- struct{}{}:
	default: // it is full, so that until looks again
	}
}

// commands returns what was asked so far.
func (g *game) commands() []*apply.Command {
	g.mu.Lock()
	defer g.mu.Unlock()
	return append([]*apply.Command{}, g.asked...)
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

// types returns the event types of a run in order, with the attempt of a step after the first.
func types(events []runevents.Record) []string {
	var list []string
	for _, e := range events {
		text := string(e.EventType)
		if e.StepID != "" {
			text += " " + e.StepID
		}
		if e.LogicalAttemptID > 1 {
			text += fmt.Sprint(" ", e.LogicalAttemptID)
		}
		list = append(list, text)
	}
	return list
}

var checked = []string{
	"RunStarted", "StepStarted duplicate-check", "StepCompleted duplicate-check",
	"StepStarted stale-check",
	"StepCompleted stale-check", "StepStarted precondition-check",
	"StepCompleted precondition-check", "StepStarted apply",
}

// story reads the events of a run and checks their places: unique, rising, without a gap.
func (c *client) story(runID string) []string {
	c.t.Helper()
	events := c.events(runID)
	for i, e := range events {
		require.Equal(c.t, int64(i+1), e.RunSeq)
	}
	return types(events)
}
