package game

import (
	"testing"

	"github.com/stretchr/testify/require"

	"worldengine/worldengine/alerts"
	"worldengine/worldengine/apply"
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
