package game

import (
	"testing"

	"worldengine/worldengine/apply"

	"github.com/stretchr/testify/require"
)

// A gate is closed until everyone who closed it has opened it; it keeps the fate of each request.
func TestGate(t *testing.T) {
	t.Parallel()
	var g Gate
	require.Equal(t, apply.NotArrived, g.Arrival())
	require.True(t, g.Pass())
	g.Close()
	require.Equal(t, apply.MayArrive, g.Arrival(), "its fate is not known")
	require.False(t, g.Pass())
	g.Missed()
	require.Equal(t, apply.NotArrived, g.Arrival())
	g.Close()
	g.Open()
	require.False(t, g.IsOpen())
	require.False(t, g.Pass())
	g.Open()
	require.True(t, g.IsOpen())
	require.True(t, g.Pass())
	g.Reached()
	g.Missed()
	require.Equal(t, apply.MayHaveArrived, g.Arrival())
}

// A request may have arrived if it was silent, had any answer, or its fate is unknown at the
// attempt's end.
func TestWhatAnAttemptTellsTheGate(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		change func(p *PluginAttempt)
		during apply.Arrival
		after  apply.Arrival
	}{
		"absent":    {func(p *PluginAttempt) { p.absent = true }, apply.NotArrived, apply.NotArrived},
		"not known": {func(*PluginAttempt) {}, apply.MayArrive, apply.MayHaveArrived},
		"silent, absent": {func(p *PluginAttempt) { p.absent, p.reached = true, true },
			apply.MayHaveArrived, apply.MayHaveArrived},
		"busy": {func(p *PluginAttempt) { p.busy, p.reached = true, true }, apply.MayHaveArrived,
			apply.MayHaveArrived},
	} {
		p, g := &PluginAttempt{sent: true}, new(Gate)
		require.True(t, g.Pass())
		c.change(p)
		p.Tell(g)
		require.Equal(t, c.during, g.Arrival(), name)
		p.Leave(g)
		require.Equal(t, c.after, g.Arrival(), name)
		left := new(Gate)
		require.True(t, left.Pass())
		p.Leave(left)
		require.Equal(t, c.after, left.Arrival(), name)
	}
}
