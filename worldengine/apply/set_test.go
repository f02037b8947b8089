package apply

import (
	"context"
	"testing"

	"github.com/stretchr/testify/require"
)

type setApplication struct{ Member[string] }

func inSet(townID, runID string, waiting ...string) *setApplication {
	return &setApplication{NewMember(Identity{TownID: townID, RunID: runID},
		"key of "+runID, waiting...)}
}

// A town has one application at most, and each waiting client gets the answer of its run once.
func TestASetHasOneApplicationOfATown(t *testing.T) {
	t.Parallel()
	var s Set[*setApplication, string]
	require.False(t, s.Join("t", "r1", "nobody"))
	first, started := inSet("t", "r1", "c1"), make(chan struct{})
	require.True(t, s.Add(first, func() { close(started) }))
	<-started
	require.Equal(t, "r1", s.RunOf("t", "key of r1"))
	require.Empty(t, s.RunOf("t", "key of r2"))
	require.True(t, s.Join("t", "r1", "c2"))
	require.True(t, s.Join("t", "r1"))
	require.False(t, s.Join("t", "r2", "c3"))
	require.True(t, s.Add(inSet("t", "r1", "c4"), func() { t.Error("the run has one already") }))
	of, ok := s.Of("t", "r1")
	require.True(t, ok)
	require.Same(t, first, of)
	_, ok = s.Of("t", "r2")
	require.False(t, ok)

	next := inSet("t", "r2")
	require.True(t, s.Add(next, func() {}), "another instance has concluded the first one")
	require.True(t, s.Add(inSet("a", "r3"), func() {}))
	require.Equal(t, []string{"c1", "c2", "c4"}, s.Remove(first))
	require.Empty(t, s.TakeWaiting(first))
	require.Equal(t, 2, s.Count(), "the next one stays")
	require.Equal(t, "a", s.All()[0].TownID)
	require.Same(t, next, s.All()[1])
}

// A set that is stopped takes no more, and ends what it has.
func TestASetIsStopped(t *testing.T) {
	t.Parallel()
	var s Set[*setApplication, string]
	ctx, cancel := context.WithCancel(t.Context())
	require.True(t, s.Add(inSet("t", "r1"), func() { <-ctx.Done() }))
	over, end := context.WithCancel(t.Context())
	end()
	s.Stop(over, cancel)
	require.False(t, s.Add(inSet("u", "r2"), func() {}))
}
