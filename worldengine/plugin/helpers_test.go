package plugin_test

import (
	"context"
	"fmt"
	"log/slog"
	"sync"
	"testing"
	"time"

	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"
	"github.com/nats-io/nats.go"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"worldengine/handoff"
	"worldengine/schemas"
	"worldengine/worldengine/internal/core/apply"
	"worldengine/worldengine/internal/core/town"
	"worldengine/worldengine/internal/core/town/towntest"
	"worldengine/worldengine/internal/testkit/natstest"
	"worldengine/worldengine/plugin"
	"worldengine/worldengine/wire"
)

func TestMain(m *testing.M) { natstest.Main(m, 8) }

// testTimeout bounds every wait; a test that passes never comes near it.
const testTimeout = time.Minute

// command makes the nth command of a town, with ten seconds left.
func command(t testing.TB, townID string, n int) *apply.Command {
	t.Helper()
	before := town.NewState(&town.Snapshot{
		SchemaVersion: town.SchemaVersion, Day: int64(n), TownID: townID,
		SideQuests: []town.SideQuest{},
		Projects:   []town.Project{{ID: "wall", Name: "Wall", Status: town.Active}},
	})
	h := towntest.Propose(t, before, handoff.AdvanceProject, "wall")
	after, reason := town.DefaultRules().Apply(before.Snapshot, &h.Proposal)
	require.Empty(t, reason)
	c := apply.NewCommand(h, "0d3c6a9e-4f0c-4a8e-9d5d-3d4c0f7dbb8a", before, after)
	c.Deadline = time.Now().Add(10 * time.Second)
	return c
}

// attempt returns the command in another logical attempt.
func attempt(c *apply.Command, n int64) *apply.Command {
	again := *c
	again.LogicalAttemptID = n
	return &again
}

// engine asks as the world engine does.
type engine struct {
	t  testing.TB
	nc *nats.Conn
}

func newEngine(t testing.TB) *engine { return &engine{t: t, nc: natstest.Connect(t)} }

// serve starts a plugin, and closes it at the test's end.
func (e *engine) serve(config plugin.Config) *plugin.Plugin {
	e.t.Helper()
	if config.Memory == nil {
		config.Memory = plugin.NewVolatileMemory()
	}
	if config.Logger == nil {
		config.Logger = slog.New(slog.DiscardHandler)
	}
	p, err := plugin.Serve(e.nc, config)
	require.NoError(e.t, err)
	e.t.Cleanup(func() { e.close(p) })
	return p
}

func (e *engine) close(p *plugin.Plugin) {
	e.t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), testTimeout)
	defer cancel()
	assert.NoError(e.t, p.Close(ctx))
}

// request has the answers to the requests for an id on a reply subject.
type request struct {
	applyID string
	replies *nats.Subscription
}

// send sends a request without waiting.
func (e *engine) send(c *apply.Command) *request {
	e.t.Helper()
	return e.request(c, e.inbox(c.ApplyID))
}

// inbox makes a reply subject for requests for an id.
func (e *engine) inbox(applyID string) *request {
	e.t.Helper()
	replies, err := e.nc.SubscribeSync(e.nc.NewInbox())
	require.NoError(e.t, err)
	return &request{applyID, replies}
}

// request sends a request for an answer on a reply subject.
func (e *engine) request(c *apply.Command, a *request) *request {
	e.t.Helper()
	data, err := c.MarshalWire(time.Now())
	require.NoError(e.t, err)
	return e.publish(a, data, c.TownID)
}

func (e *engine) publish(a *request, data []byte, townID string) *request {
	e.t.Helper()
	require.NoError(e.t, e.nc.PublishRequest(subjectOf(townID), a.replies.Subject, data))
	return a
}

func subjectOf(townID string) string { return wire.ApplySubject("main", wire.TownToken(townID)) }

// answer waits for the next answer.
func (a *request) answer(t testing.TB) apply.GameAnswer {
	t.Helper()
	msg, err := a.replies.NextMsg(testTimeout)
	require.NoError(t, err)
	answer, err := apply.ParseAnswer(msg.Data, a.applyID, schemas.Limits{})
	require.NoError(t, err, string(msg.Data))
	return answer
}

// ask sends a request and waits for its first answer.
func (e *engine) ask(c *apply.Command) apply.GameAnswer {
	e.t.Helper()
	return e.send(c).answer(e.t)
}

// game is changed by Apply, and counts how often each command was applied.
type game struct {
	mu      sync.Mutex
	applied map[string]int
	order   []string
}

func newGame() *game { return &game{applied: map[string]int{}} }

func (g *game) apply(_ context.Context, c *apply.Command) (apply.GameAnswer, error) {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.applied[c.ApplyID]++
	g.order = append(g.order, fmt.Sprintf("%s %d", c.TownID, c.DecisionEpoch))
	return apply.Done(c), nil
}

// recover reports whether a command is in the game.
func (g *game) recover(_ context.Context, c *apply.Command) (apply.GameAnswer, error) {
	if g.times(c) > 0 {
		return apply.Done(c), nil
	}
	return apply.Refuse(c, "NOT_APPLIED", "The game does not have it.", true), nil
}

func (g *game) times(c *apply.Command) int {
	g.mu.Lock()
	defer g.mu.Unlock()
	return g.applied[c.ApplyID]
}

// firstExample returns the first of a schema's examples.
func firstExample(source []byte) []byte {
	var schema struct {
		Examples []jsontext.Value `json:"examples"`
	}
	if err := json.Unmarshal(source, &schema); err != nil || len(schema.Examples) == 0 {
		panic("the schema has no example")
	}
	return schema.Examples[0]
}
