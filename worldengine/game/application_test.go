package game

import (
	"testing"

	"github.com/stretchr/testify/require"

	"worldengine/worldengine/alerts"
	"worldengine/worldengine/apply"
	"worldengine/worldengine/stepper"
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

// inTown returns an application of a town's run.
func inTown(townID, runID string) *Application {
	return newApplication(alerts.About{TownID: townID, RunID: runID})
}

// A town has at most one application, one that is over makes room for the next, and a worker that
// stops accepts no more.
func TestWorker_Applications(t *testing.T) {
	t.Parallel()
	w := New(t.Context(), &stepper.Stepper{}, Config{})
	w.stop() // so that an application ends at once
	first, next := inTown("t", "r1"), inTown("t", "r2")
	w.towns["t"] = first
	require.Same(t, first, w.of("t", "r1"))
	require.Same(t, first, w.of("t", ""))
	require.Nil(t, w.of("t", "r2"))
	w.towns["t"], w.towns["a"] = next, inTown("a", "r3")
	w.remove(first)
	require.Equal(t, 2, w.Count(), "the next one stays")
	require.Equal(t, []*Application{w.towns["a"], next}, w.all())
	w.remove(next)
	require.Nil(t, w.of("t", ""))
	w.Stop(t.Context())
	require.False(t, w.start(next))
	require.Equal(t, 1, w.Count())
}
