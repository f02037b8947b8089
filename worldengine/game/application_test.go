package game

import (
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"worldengine/worldengine/alerts"
	"worldengine/worldengine/apply"
	"worldengine/worldengine/messages"
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

// A wait for an absent game ends when the client is to be answered.
func TestApplication_Next(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		a := inTown("t", "r")
		waited := func() time.Duration {
			began := time.Now()
			require.Zero(t, a.next(t.Context(), time.Hour))
			return time.Since(began)
		}
		a.patient = time.Now().Add(2 * time.Hour)
		require.Equal(t, time.Hour, waited(), "the game is there")
		a.away.Store(new(messages.AbsentPlugin))
		a.patient = time.Now().Add(30 * time.Second)
		require.Equal(t, 30*time.Second, waited())
		require.Equal(t, time.Hour, waited(), "the client is answered")
	})
}

// inTown returns an application of a town's run.
func inTown(townID, runID string) *Application {
	return newApplication(alerts.About{TownID: townID, RunID: runID})
}
