package game

import (
	"context"
	"testing"

	"github.com/stretchr/testify/require"

	"worldengine/worldengine/alerts"
	"worldengine/worldengine/apply"
	"worldengine/worldengine/machine"
)

// A gate is closed until everyone who closed it has opened it; it keeps the fate of each request.
func TestApplication_Gate(t *testing.T) {
	t.Parallel()
	var a Application
	require.Equal(t, apply.NotArrived, a.arrival())
	require.True(t, a.pass())
	a.close()
	require.Equal(t, apply.MayArrive, a.arrival(), "its fate is not known")
	require.False(t, a.pass())
	a.learn(apply.MayArrive)
	require.Equal(t, apply.MayArrive, a.arrival())
	a.learn(apply.NotArrived)
	require.Equal(t, apply.NotArrived, a.arrival())
	a.close()
	a.open()
	require.False(t, a.isOpen())
	require.False(t, a.pass())
	a.open()
	require.True(t, a.isOpen())
	require.True(t, a.pass())
	a.learn(apply.MayHaveArrived)
	a.learn(apply.NotArrived)
	require.Equal(t, apply.MayHaveArrived, a.arrival())
}

// A request may have arrived if it was silent, had any answer, or its fate is unknown at the
// attempt's end.
func TestPluginAttempt_Arrival(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		attempt      PluginAttempt
		during, over apply.Arrival
	}{
		"absent":    {PluginAttempt{absent: true}, apply.NotArrived, apply.NotArrived},
		"not known": {PluginAttempt{}, apply.MayArrive, apply.MayHaveArrived},
		"silent, absent": {PluginAttempt{absent: true, reached: true}, apply.MayHaveArrived,
			apply.MayHaveArrived},
		"busy": {PluginAttempt{busy: true, reached: true}, apply.MayHaveArrived,
			apply.MayHaveArrived},
	} {
		c.attempt.sent = true
		require.Equal(t, c.during, c.attempt.Arrival(false), name)
		require.Equal(t, c.over, c.attempt.Arrival(true), name)
	}
}

// named is a client that adds its name to the answered ones.
type named struct {
	name string
	to   *[]string
}

func (n named) Answer(machine.Answer, error) { *n.to = append(*n.to, n.name) }

// inTown returns an application of a town's run.
func inTown(townID, runID string) *Application {
	return newApplication(alerts.About{TownID: townID, RunID: runID})
}

// Each client gets the answer once, and nobody joins an application that is over.
func TestApplication_Clients(t *testing.T) {
	t.Parallel()
	var answered []string
	a := inTown("t", "r1")
	require.True(t, a.join(named{"c1", &answered}))
	a.answer(false, machine.Answer{}, ErrInProgress)
	require.True(t, a.join(nil))
	require.True(t, a.join(named{"c2", &answered}))
	require.Equal(t, []string{"c1"}, answered)
	a.answer(true, machine.Answer{}, nil)
	require.False(t, a.join(named{"c3", &answered}))
	a.answer(true, machine.Answer{}, nil)
	require.Equal(t, []string{"c1", "c2"}, answered)
}

// A town has at most one application, and one that is over makes room for the next.
func TestApplications(t *testing.T) {
	t.Parallel()
	var s applications
	first, started := inTown("t", "r1"), make(chan struct{})
	require.True(t, s.add(first, func() { close(started) }))
	<-started
	require.Same(t, first, s.of("t", "r1"))
	require.Same(t, first, s.of("t", ""))
	require.Nil(t, s.of("t", "r2"))

	next := inTown("t", "r2")
	require.True(t, s.add(next, func() {}), "another writer has concluded the first one")
	require.True(t, s.add(inTown("a", "r3"), func() {}))
	s.remove(first)
	require.Equal(t, 2, s.count(), "the next one stays")
	require.Equal(t, "a", s.all()[0].TownID)
	require.Same(t, next, s.all()[1])
	s.remove(next)
	require.Nil(t, s.of("t", ""))
}

// Stopped applications are ended, and no more are accepted.
func TestApplications_Stop(t *testing.T) {
	t.Parallel()
	var s applications
	ctx, cancel := context.WithCancel(t.Context())
	require.True(t, s.add(inTown("t", "r1"), func() { <-ctx.Done() }))
	over, end := context.WithCancel(t.Context())
	end()
	s.stop(over, cancel)
	require.False(t, s.add(inTown("u", "r2"), func() {}))
}
