package game

import (
	"context"
	"testing"

	"github.com/stretchr/testify/require"

	"worldengine/handoff"
	"worldengine/worldengine/apply"
	"worldengine/worldengine/machine"
)

// inSet returns an application of a town's run, whose waiting clients add their names to told.
func inSet(townID, runID string, told *[]string, clients ...string) *application {
	a := &application{town: townID, runID: runID,
		Decoded: apply.Decoded{Handoff: &handoff.Handoff{IdempotencyKey: "key of " + runID}}}
	for _, name := range clients {
		a.clients = append(a.clients, client(told, name))
	}
	return a
}

func client(told *[]string, name string) answering {
	return func(machine.Answer, error) { *told = append(*told, name) }
}

// A town has at most one application, and each waiting client gets its run's answer once.
func TestApplications(t *testing.T) {
	t.Parallel()
	var s applications
	var told []string
	require.False(t, s.join("t", "r1", client(&told, "nobody")))
	first, started := inSet("t", "r1", &told, "c1"), make(chan struct{})
	require.True(t, s.add(first, func() { close(started) }))
	<-started
	require.Equal(t, "r1", s.runOf("t", "key of r1"))
	require.Empty(t, s.runOf("t", "key of r2"))
	require.True(t, s.join("t", "r1", client(&told, "c2")))
	require.True(t, s.join("t", "r1"))
	require.False(t, s.join("t", "r2", client(&told, "c3")))
	require.True(t, s.add(inSet("t", "r1", &told, "c4"),
		func() { t.Error("the run has one already") }))
	require.Same(t, first, s.of("t", "r1"))
	require.Nil(t, s.of("t", "r2"))

	next := inSet("t", "r2", &told)
	require.True(t, s.add(next, func() {}), "another writer has concluded the first one")
	require.True(t, s.add(inSet("a", "r3", &told), func() {}))
	for _, done := range s.remove(first) {
		done(machine.Answer{}, nil)
	}
	require.Equal(t, []string{"c1", "c2", "c4"}, told)
	require.Empty(t, s.takeClients(first))
	require.Equal(t, 2, s.count(), "the next one stays")
	require.Equal(t, "a", s.all()[0].town)
	require.Same(t, next, s.all()[1])
}

// Stopped applications are ended, and no more are accepted.
func TestApplications_Stop(t *testing.T) {
	t.Parallel()
	var s applications
	var told []string
	ctx, cancel := context.WithCancel(t.Context())
	require.True(t, s.add(inSet("t", "r1", &told), func() { <-ctx.Done() }))
	over, end := context.WithCancel(t.Context())
	end()
	s.stop(over, cancel)
	require.False(t, s.add(inSet("u", "r2", &told), func() {}))
}
