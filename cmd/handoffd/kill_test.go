package main

import (
	"encoding/json"
	"fmt"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/stretchr/testify/require"

	"worldengine/handoff"
	"worldengine/schemas"
	"worldengine/worldengine/town"
	"worldengine/worldengine/wire"
)

// hammer drives some towns with one handoff after another each, and knows what their states must
// be: it is the model that the server is held against.
type hammer struct {
	t     testing.TB
	towns []*driven
	count atomic.Int64
}

// driven is one town of a hammer.
type driven struct {
	id       string
	state    town.State // after what was answered
	answered []answered
	open     []byte // a handoff that was sent and not answered
}

type answered struct {
	key   string
	bytes string
}

func newHammer(t testing.TB, towns int) *hammer {
	h := &hammer{t: t}
	for i := range towns {
		h.towns = append(h.towns,
			&driven{id: fmt.Sprintf("town %d", i), state: town.NewState(&town.Snapshot{
				SchemaVersion: town.SchemaVersion, TownID: fmt.Sprintf("town %d", i),
				SideQuests: []town.SideQuest{}, Projects: []town.Project{},
			})})
	}
	return h
}

func (h *hammer) create(nc *nats.Conn) {
	h.t.Helper()
	for _, d := range h.towns {
		reply, err := nc.Request(wire.Subject("main", "town.put"),
			fmt.Appendf(nil, `{"snapshot":%s}`, d.state.Canonical), 30*time.Second)
		require.NoError(h.t, err)
		require.Empty(h.t, reply.Header.Get("Nats-Service-Error-Code"), "%s", reply.Data)
	}
}

func (h *hammer) answers() int { return int(h.count.Load()) }

// run drives every town until enough says so for the number of answers, or the server is gone. It
// returns the number of answers.
func (h *hammer) run(nc *nats.Conn, enough func(answers int) bool) int {
	var wg sync.WaitGroup
	for _, d := range h.towns {
		wg.Go(func() {
			for !enough(h.answers()) && h.step(nc, d) {
			}
		})
	}
	wg.Wait()
	return h.answers()
}

// step sends the town's open handoff, or its next one, and takes the answer.
func (h *hammer) step(nc *nats.Conn, d *driven) bool {
	if d.open == nil {
		d.open = d.next(h.t)
	}
	reply, err := nc.Request(wire.Subject("main", "handoff"), d.open, 30*time.Second)
	if err != nil {
		if err == nats.ErrNoResponders { // it was not taken, so nothing is open
			d.open = nil
		}
		return false
	}
	if reply.Header.Get("Nats-Service-Error-Code") == "503" {
		return false // it may or may not have been stored: asking again tells
	}
	return h.take(d, reply.Data)
}

// take checks an answer against the model: whatever happened before, the state must move on by
// exactly this handoff, once.
func (h *hammer) take(d *driven, data []byte) bool {
	result, err := handoff.ParseResult(data, schemas.Limits{})
	if err != nil {
		h.t.Errorf("%s: %v in %s", d.id, err, data)
		return false
	}
	asked, err := handoff.Parse(d.open, schemas.Limits{})
	if err != nil {
		h.t.Errorf("%s: %v", d.id, err)
		return false
	}
	after, reason := town.DefaultRules().Apply(d.state.Snapshot, &asked.Proposal)
	if reason != "" {
		h.t.Errorf("%s: the model cannot apply: %s", d.id, reason)
		return false
	}
	switch {
	case result.Status == handoff.Executed && *result.WorldState.SnapshotHash == after.Hash:
		d.answered = append(d.answered, answered{result.IdempotencyKey, string(data)})
	case result.Status == handoff.Duplicate: // executed before the server was killed
		d.answered = append(d.answered, answered{result.IdempotencyKey, ""})
	default:
		h.t.Errorf("%s: at epoch %d answered %s", d.id, d.state.Epoch(), data)
		return false
	}
	d.state, d.open = after, nil
	h.count.Add(1)
	return true
}

func (d *driven) next(t testing.TB) []byte {
	p := handoff.Proposal{
		Type: handoff.TalkToTownsfolk, ActorID: "mayor-1", TownID: d.id,
		Priority: 0.5, Reason: "Because.",
		Args:         map[string]string{"talkType": "casual"},
		SnapshotHash: d.state.Hash, DecisionEpoch: d.state.Epoch(),
	}
	made, err := handoff.New(p)
	require.NoError(t, err)
	encoded, err := made.MarshalWire()
	require.NoError(t, err)
	return encoded
}

// verify holds the whole server against the model: the state of every town, and every answer that
// was ever given.
func (h *hammer) verify(nc *nats.Conn) {
	h.t.Helper()
	for _, d := range h.towns {
		reply, err := nc.Request(wire.Subject("main", "town.get"),
			fmt.Appendf(nil, `{"townId":%q}`, d.id), 30*time.Second)
		require.NoError(h.t, err)
		var at struct{ SnapshotHash string }
		require.NoError(h.t, json.Unmarshal(reply.Data, &at))
		require.Equal(h.t, d.state.Hash, at.SnapshotHash, d.id)
		for _, a := range d.answered {
			reply, err := nc.Request(wire.Subject("main", "result.get"),
				fmt.Appendf(nil, `{"idempotencyKey":%q}`, a.key), 30*time.Second)
			require.NoError(h.t, err)
			var kept struct{ Result json.RawMessage }
			require.NoError(h.t, json.Unmarshal(reply.Data, &kept))
			if a.bytes != "" {
				require.Equal(h.t, a.bytes, string(kept.Result), "an answer was lost")
			}
			require.NotEmpty(h.t, kept.Result, "an accepted handoff was lost: %s", reply.Data)
		}
	}
}
