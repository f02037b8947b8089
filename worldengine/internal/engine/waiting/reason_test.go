package waiting_test

import (
	"testing"

	"github.com/stretchr/testify/require"

	"worldengine/runevents"
	"worldengine/worldengine/internal/core/apply"
	"worldengine/worldengine/internal/core/machine"
	"worldengine/worldengine/internal/engine/waiting"
	"worldengine/worldengine/messages"
)

// The pause of the town comes before the pause of the world, and a pause before a pending command.
func TestReasonFor(t *testing.T) {
	t.Parallel()
	own, world := &messages.PausedBy{SignalID: "own"}, &messages.PausedBy{SignalID: "world"}
	pending := &apply.Pending{Run: runevents.Identity{RunID: "run"}}
	for _, row := range []struct {
		name  string
		town  machine.Town
		world *messages.PausedBy
		want  waiting.Reason
	}{
		{"nothing", machine.Town{}, nil, waiting.Reason{}},
		{"a pending command", machine.Town{Pending: pending}, nil,
			waiting.Reason{Kind: waiting.EndOfCommand, RunBefore: "run"}},
		{"a pause of the town", machine.Town{Paused: own, Pending: pending}, nil,
			waiting.Reason{Kind: waiting.EndOfPause, Pause: own}},
		{"a pause of the world", machine.Town{Pending: pending}, world,
			waiting.Reason{Kind: waiting.EndOfPause, Pause: world, World: true}},
		{"both pauses", machine.Town{Paused: own}, world, waiting.Reason{Kind: waiting.EndOfPause, Pause: own}},
	} {
		require.Equal(t, row.want, waiting.ReasonFor(row.town, row.world), row.name)
	}
}
