package records_test

import (
	"testing"

	"github.com/stretchr/testify/require"

	"worldengine/handoff"
	"worldengine/worldengine/internal/core/machine"
	"worldengine/worldengine/internal/core/machine/machinetest"
	"worldengine/worldengine/internal/core/town"
	"worldengine/worldengine/internal/store/commitlog/logtest"
	"worldengine/worldengine/internal/store/records"
)

// BenchmarkDecision makes the message of a decision to execute a handoff: a server's work for each
// handoff behind the rules, without NATS.
func BenchmarkDecision(b *testing.B) {
	var h *handoff.Handoff
	var result *handoff.Result
	var after town.State
	for _, c := range machinetest.Cases(b) {
		if c.Want.Status == handoff.Executed {
			h, result = c.Handoff, handoff.NewResult(c.Handoff, c.Want)
			after, _ = town.DefaultRules().Apply(c.State.Snapshot, &h.Proposal)
		}
	}
	require.NotNil(b, h)
	run := logtest.RunOf(h)
	check := func(err error) {
		if err != nil {
			b.Fatal(err)
		}
	}
	b.ReportAllocs()
	for b.Loop() {
		encoded, err := result.MarshalWire()
		check(err)
		asked, err := h.MarshalWire()
		check(err)
		p := logtest.NewProducer(run)
		check(machine.EmitRun(p, h, result, machine.RunStart{}))
		addition := handoff.AdditionOf(h)
		rec := machine.Record{
			Kind: machine.KindConcluded, TownID: h.Proposal.TownID, Result: encoded,
			Handoff: asked, Addition: &addition, Run: p.Run(),
		}
		_, err = records.Encode(&rec, "log.a", &machine.Town{State: after})
		check(err)
	}
}
