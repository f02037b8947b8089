package service

import (
	"cmp"
	"log/slog"
	"slices"
	"testing"

	"github.com/stretchr/testify/require"

	"worldengine/worldengine/queue"
	"worldengine/worldengine/wire"
)

// arriving is a request whose client waits for no answer.
func arriving(data string) *incoming { return &incoming{data: []byte(data)} }

// As many requests of each verb are held as docs/overload.md says: about one town, run or key, or
// about none, and then some more about another one.
func TestHowManyRequestsAreHeld(t *testing.T) {
	t.Parallel()
	const many, few = 4096, 128
	// These share slots with bounds of their own, those of handoffs.
	others := []wire.Verb{"handoff", "town.put", "town.patch", "town.remove", "run.append"}
	for _, verb := range wire.Verbs() {
		if slices.Contains(others, verb) {
			continue
		}
		spec, held := verb.Spec(), many
		if spec.Lists {
			held = few
		}
		member := string(cmp.Or(spec.About, wire.AboutTown))
		about := [2]string{`{"` + member + `":"a"}`, `{"` + member + `":"b"}`}
		e, s := unread(t, verb)
		for range held {
			s.admit(e, arriving(about[0]))
		}
		require.Equal(t, held, s.Overload().Held, verb)
		s.admit(e, arriving(about[0]))
		require.Equal(t, int64(1), s.Overload().Refused["town"], verb)
		s.admit(e, arriving(about[1]))
		require.Equal(t, held+1, s.Overload().Held, "%s: another one is held", verb)
	}
}

// unread returns the endpoint of a verb in a service that has no readers: what is admitted stays.
func unread(t *testing.T, verb wire.Verb) (*endpoint, *Service) {
	t.Helper()
	config := Config{Logger: slog.New(slog.DiscardHandler)}.withDefaults()
	config.Readers = -1
	s := &Service{config: config, changes: queue.NewSlots(1, 1), stop: func() {}}
	s.held.bound = config.MaxHeld
	s.endpoints, s.dryRuns = s.makeEndpoints(), s.makeDryRuns()
	t.Cleanup(s.stopWorkers)
	for _, e := range s.endpoints {
		if e.verb == verb {
			return e, s
		}
	}
	t.Fatalf("there is no verb %s", verb)
	return nil, nil
}
