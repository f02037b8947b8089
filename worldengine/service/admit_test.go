package service

import (
	"cmp"
	"encoding/json"
	"log/slog"
	"os"
	"slices"
	"sync"
	"testing"

	"github.com/stretchr/testify/require"

	"worldengine/worldengine/natstest"
	"worldengine/worldengine/queue"
	"worldengine/worldengine/wire"
)

// The pause grows with the number of waiting requests, within its bounds.
func TestPauseFor(t *testing.T) {
	t.Parallel()
	for load, want := range map[queue.Load]int{
		{}: 50, {Town: 3, All: 3}: 50, {Town: 30, All: 30}: 100, {Town: 258, All: 258}: 550,
		{Town: 2, All: 2048}: 550, {Town: 2, All: 1 << 20}: 1000, {Town: 1 << 20}: 1000,
	} {
		require.Equal(t, want, pauseFor(load), "%+v", load)
	}
}

// Bytes never exceed their bound, and a request that is released twice counts once.
func TestHeld_Bound(t *testing.T) {
	t.Parallel()
	s := &Service{held: held{bound: 1000}}
	slots := queue.NewSlots(1<<20, 1<<21)
	var clients sync.WaitGroup
	for range 8 {
		clients.Go(func() {
			for n := range int64(2000) {
				if !s.held.take(n%400, false) {
					continue
				}
				if bytes := s.held.bytes.Load(); bytes > s.held.bound {
					t.Errorf("%d bytes are held", bytes)
				}
				if slots.Take("t") != queue.Granted {
					t.Error("no slot is free")
				}
				in := &incoming{slots: slots, town: "t", bytes: n % 400}
				s.release(in)
				s.release(in)
			}
		})
	}
	clients.Wait()
	require.Zero(t, s.Overload().HeldBytes)
	require.Zero(t, s.Overload().Held)
	require.Zero(t, slots.Taken())
	require.True(t, s.held.take(1000, false))
	require.False(t, s.held.take(1, false))
	require.True(t, s.held.take(100, true), "a read has room still")
}

// As many requests of each verb are held as docs/overload.md says: about one town, run or key, or
// about none, and then some more about another one.
func TestAdmit_Slots(t *testing.T) {
	t.Parallel()
	const many, few = 4096, 128
	s := &Service{
		config:  Config{Logger: slog.New(slog.DiscardHandler)}.withDefaults(),
		changes: queue.NewSlots(1, 1), stop: func() {},
	}
	s.config.Readers = -1 // nobody works on the requests
	s.held.bound = 1 << 40
	s.endpoints, s.dryRuns = s.makeEndpoints(), s.makeDryRuns()
	t.Cleanup(s.stopWorkers)
	var verbs []wire.Verb
	for _, e := range s.endpoints {
		verbs = append(verbs, e.verb)
		if !e.reads { // these share the slots of handoffs
			continue
		}
		spec, bound := e.verb.Spec(), many
		if spec.Lists {
			bound = few
		}
		admit := func(about string) (admitted bool) {
			before := s.Overload().Held
			s.admit(e, &incoming{data: []byte(
				`{"` + string(cmp.Or(spec.About, wire.AboutTown)) + `":"` + about + `"}`)})
			return s.Overload().Held > before
		}
		for range bound {
			require.True(t, admit("a"), e.verb)
		}
		refused := s.Overload().Refused["town"]
		require.False(t, admit("a"), e.verb)
		require.Equal(t, refused+1, s.Overload().Refused["town"], e.verb)
		require.True(t, admit("b"), e.verb)
	}
	slices.Sort(verbs)
	require.Equal(t, slices.Sorted(slices.Values(wire.Verbs())), verbs, "each verb has its endpoint")
}

// BenchmarkRefuse refuses a handoff that gets no slot, with its answer.
func BenchmarkRefuse(b *testing.B) {
	data, err := os.ReadFile("../../testdata/vectors/handoffs.valid.json")
	require.NoError(b, err)
	var vectors []struct{ Handoff json.RawMessage }
	require.NoError(b, json.Unmarshal(data, &vectors))
	nc := natstest.Connect(b)
	s, e := new(Service), &endpoint{slots: queue.NewSlots(1, 2), about: aboutTown}
	e.slots.TakeBytes(peekID(aboutTown, vectors[0].Handoff))
	in := &incoming{
		entrance: &Entrance{Requests: nc}, inbox: nc.NewInbox(), data: vectors[0].Handoff,
	}
	b.ReportAllocs()
	for b.Loop() {
		s.admit(e, in)
	}
}
