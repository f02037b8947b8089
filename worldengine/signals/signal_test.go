package signals_test

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"worldengine/worldengine/lifecycle"
	"worldengine/worldengine/signals"
)

func TestDefaultsOfASignal(t *testing.T) {
	t.Parallel()
	require.Equal(t, signals.Signal{ActorID: "operator", DrainTimeout: 5 * time.Minute},
		signals.Signal{}.WithDefaults())
	given := signals.Signal{
		Kind: lifecycle.SignalCancel, TownID: "t", RunID: "r", Force: true, HandoffID: "h",
		ActorID: "ada", Reason: "why", DrainTimeout: time.Second,
	}
	require.Equal(t, given, given.WithDefaults(), "what is given stays")
}
