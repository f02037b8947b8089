package engine

import (
	"slices"
	"time"

	"github.com/nats-io/nats.go"

	"worldengine/schemas"
	"worldengine/worldengine/internal/core/apply"
	"worldengine/worldengine/internal/engine/game"
)

// simRouter carries an engine's requests to the game: in time, late, or never.
type simRouter struct {
	sim    *sim
	engine *simEngine
}

func (p *simRouter) Ask(_ string, m *game.Execution, attempt int64, data []byte) error {
	_, err := simDo(p.engine.alive, p.sim, p.engine, "ask "+m.TownID,
		func() (struct{}, error) {
			if p.sim.game.isAbsent {
				p.sim.trace("nobody has %s", m.TownID)
				if !p.sim.chance(6) {
					m.Deliver(game.Reply{Msg: noResponders(), Attempt: attempt})
				}
				return struct{}{}, nil
			}
			if p.sim.chance(5) {
				p.sim.game.delayed = append(p.sim.game.delayed, simRequest{m, data, time.Now()})
			} else {
				p.sim.game.receive(simRequest{m, data, time.Now()})
			}
			return struct{}{}, nil
		})
	return err
}

func (p *simRouter) Forget(*game.Execution, bool) {}

func noResponders() *nats.Msg { return &nats.Msg{Header: nats.Header{"Status": {"503"}}} }

type simRequest struct {
	to   *game.Execution
	data []byte
	sent time.Time
}

// simGame is a game server whose plugin keeps to the protocol.
type simGame struct {
	sim      *sim
	changes  map[string]int // how often an applyId changed the game
	definite map[string]apply.GameAnswer
	delayed  []simRequest
	had      map[string]bool // the runs whose command it was asked for
	isAbsent bool            // requests reach nobody
	forgets  bool            // a bug that a test plants: it does not remember what it applied
	// answer decides instead of chance, and reports whether there is an answer; nil for chance.
	answer func(*apply.Command) (apply.GameAnswer, bool)
	heard  func(simRequest, *apply.Command) // gets each request, if it is set
}

func (g *simGame) deliverLate() {
	i := g.sim.rng.IntN(len(g.delayed))
	r := g.delayed[i]
	g.delayed = slices.Delete(g.delayed, i, i+1)
	g.receive(r)
}

// receive answers a request, if the answer arrives.
func (g *simGame) receive(r simRequest) {
	c, err := apply.ParseCommand(r.data, schemas.Limits{})
	if err != nil {
		panic(err)
	}
	c.Deadline = r.sent.Add(time.Duration(c.TimeoutMs) * time.Millisecond) // by the game's clock
	g.had[c.RunID] = true
	if g.heard != nil {
		g.heard(r, c)
	}
	if g.answer != nil {
		if answer, ok := g.answer(c); ok {
			if answer.Status == apply.Applied {
				g.changes[c.ApplyID] = 1
			}
			g.deliver(r, c, answer)
		}
		return
	}
	answer, known := g.definite[c.ApplyID]
	if !known || g.forgets {
		answer = g.decide(c)
	}
	g.sim.trace("the game answers %s to attempt %d of %s", answer.Status,
		c.LogicalAttemptID, c.TownID)
	if !g.sim.chance(6) {
		g.deliver(r, c, answer)
	}
}

func (g *simGame) deliver(r simRequest, c *apply.Command, answer apply.GameAnswer) {
	encoded, err := answer.MarshalWire()
	if err != nil {
		panic(err)
	}
	r.to.Deliver(game.Reply{Msg: &nats.Msg{Data: encoded}, Attempt: c.LogicalAttemptID})
}

func (g *simGame) decide(c *apply.Command) apply.GameAnswer {
	switch n := g.sim.rng.IntN(10); {
	case !time.Now().Before(c.Deadline):
		return apply.Refuse(c, "DEADLINE_PASSED", "", true)
	case n == 0 && !g.sim.quiet:
		return apply.Later(c, apply.Busy, 20*time.Millisecond)
	case n == 1 && !g.sim.quiet:
		return apply.Refuse(c, "NOT_NOW", "", true)
	case n == 2:
		g.definite[c.ApplyID] = apply.Refuse(c, "NEVER", "", false)
	default:
		g.changes[c.ApplyID]++
		g.definite[c.ApplyID] = apply.Done(c)
	}
	return g.definite[c.ApplyID]
}
