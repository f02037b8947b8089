package game

import (
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"worldengine/worldengine/internal/core/apply"
	"worldengine/worldengine/internal/store/alerts"
	"worldengine/worldengine/messages"
)

// An application keeps the fate of its requests.
func TestApplication_Fate(t *testing.T) {
	t.Parallel()
	var a Application
	for _, step := range []struct{ learns, fate apply.Arrival }{
		{apply.MayArrive, apply.MayArrive}, {apply.NotArrived, apply.NotArrived},
		{apply.MayHaveArrived, apply.MayHaveArrived}, {apply.NotArrived, apply.MayHaveArrived},
	} {
		a.sends()
		a.learn(step.learns)
		require.Equal(t, step.fate, a.fate)
	}
}

// A wait for an absent game ends when the client is to be answered.
func TestWorker_Next(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		a, w := inTown("t", "r"), &Worker{}
		waited := func() time.Duration {
			began := time.Now()
			r, err := w.next(t.Context(), a, time.Hour, a.replies)
			require.NoError(t, err)
			require.Zero(t, r)
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
	return newApplication(alerts.Subject{TownID: townID, RunID: runID})
}
