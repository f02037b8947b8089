package server_test

import (
	"encoding/json"
	"fmt"
	"hash/fnv"
	"math/rand/v2"
	"sync"
	"testing"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"worldengine/handoff"
	"worldengine/schemas"
	"worldengine/worldengine/apply"
	"worldengine/worldengine/server"
	"worldengine/worldengine/wire"
)

// A plugin answers with mutants, and behind each with a valid refusal. Only a command-applied.v1 of
// this very command that says "applied" makes a handoff executed; each handoff gets a result all
// the same, and its town moves on by executed commands alone.
func TestMutatedPluginAnswers(t *testing.T) {
	t.Parallel()
	c := newWorld(t, byPlugin, func(config *server.Config) { config.Engine.Plugin.Attempts = 1 })
	p := &liar{t: t, docs: readDocuments(t), told: map[string]lie{}, ended: map[string]int{}}
	_, err := connect(t, c.srv).nc.Subscribe(wire.ApplySubject(wire.DefaultWorld, "*"), p.take)
	require.NoError(t, err)
	h := parsed(t, propose(c.putTown("another-town"), handoff.AdvanceProject, "wall"))
	p.ids = []string{h.HandoffID, h.SnapshotHash, "another-town", h.IdempotencyKey}

	const sideBySide = 16
	var work sync.WaitGroup
	for i := range sideBySide {
		work.Go(func() {
			for n := i; n < *mutantCount && !t.Failed(); n += sideBySide {
				p.judge(c.client, n)
			}
		})
	}
	work.Wait()
	t.Logf("%d mutants: %v", *mutantCount, p.ended)
	require.NotZero(t, p.ended[string(handoff.ReasonExecuted)])
	require.NotZero(t, p.ended[string(apply.ReasonPluginRejected)])
}

// liar is a plugin that does not keep to the protocol.
type liar struct {
	t testing.TB

	docs documents
	ids  []string // see mutator

	mu    sync.Mutex
	told  map[string]lie // by applyId
	ended map[string]int
}

// lie is the mutant that a command was answered with first.
type lie struct {
	data []byte
	how  string
}

func (p *liar) take(msg *nats.Msg) {
	c, err := apply.ParseCommand(msg.Data, schemas.Limits{})
	if err != nil {
		p.t.Errorf("not a command-apply.v1: %v", err)
		return
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	if _, again := p.told[c.ApplyID]; !again {
		l := p.lieAbout(c)
		p.told[c.ApplyID] = l
		_ = msg.Respond(l.data)
	}
	a := apply.Refuse(c, "IN_THE_END", "No.", false)
	data, err := a.MarshalWire()
	if err != nil {
		p.t.Errorf("an answer cannot be written: %v", err)
	}
	_ = msg.Respond(data)
}

// lieAbout returns a mutant of a valid answer to a command: which one, the seed and the town
// decide, whenever the command comes.
func (p *liar) lieAbout(c *apply.Command) lie {
	snapshot, err := json.Marshal(c.ExpectedSnapshot)
	if err != nil {
		p.t.Errorf("a snapshot cannot be written: %v", err)
	}
	name := fnv.New64a()
	_, _ = name.Write([]byte(c.TownID))
	m := &mutator{g: rand.New(rand.NewPCG(*mutantSeed, name.Sum64())), docs: p.docs, ids: p.ids}
	answers := []apply.Answer{
		apply.Done(c), apply.Done(c), apply.Refuse(c, "PROTECTED_AREA", "No.", false),
		apply.Later(c, apply.Busy, time.Millisecond),
		apply.Later(c, apply.InProgress, time.Millisecond),
	}
	answers[1].Snapshot = snapshot
	a := pick(m.g, answers)
	data, err := a.MarshalWire()
	if err != nil {
		p.t.Errorf("an answer cannot be written: %v", err)
	}
	l := lie{data: data, how: "unchanged"}
	if m.g.IntN(20) > 0 {
		l.data, l.how = m.mutant(schemas.CommandApplied, nodeOf(p.t, data))
	}
	return l
}

// judge has one handoff of a new town answered with a mutant.
func (p *liar) judge(c *client, n int) {
	at := c.putTown(fmt.Sprint("town-", n))
	o := c.send(c.wall(at))
	after := c.town(at.TownID)
	p.mu.Lock()
	defer p.mu.Unlock()
	l := p.told[o.result.HandoffID]
	delete(p.told, o.result.HandoffID)
	p.ended[string(o.result.ReasonCode)]++
	tree, mayBe := p.docs.mayBe(schemas.CommandApplied, l.data)
	says, _ := tree.(members)
	ours := mayBe && says["applyId"] == o.result.HandoffID
	sent := fmt.Sprintf("-mutants.seed=%d, %s, %s: %.3000q ended as %s", *mutantSeed, at.TownID,
		l.how, l.data, o.bytes)

	assert.Equal(p.t, *o.result.WorldState.SnapshotHash, after.SnapshotHash, sent)
	if o.result.Status == handoff.Executed {
		assert.True(p.t, ours && says["status"] == "applied", sent)
		assert.Greater(p.t, after.DecisionEpoch, at.DecisionEpoch, sent)
		return
	}
	assert.Equal(p.t, handoff.Failed, o.result.Status, sent)
	assert.Equal(p.t, at.SnapshotHash, after.SnapshotHash, sent)
	_, strict := schemas.Decode(l.data, schemas.Limits{})
	switch {
	case !ours || strict != nil || says["status"] == "refused":
		assert.Equal(p.t, apply.ReasonPluginRejected, o.result.ReasonCode, sent)
	case says["status"] == "applied":
		assert.Equal(p.t, apply.ReasonPluginStateInvalid, o.result.ReasonCode, sent)
		assert.Contains(p.t, says, "snapshot", sent)
	}
}
