package apply

import (
	"testing"

	"github.com/stretchr/testify/require"
)

// A gate is closed by what reached nobody alone, and what has arrived once stays so.
func TestGate(t *testing.T) {
	t.Parallel()
	var g Gate
	require.True(t, g.Pass())
	require.Equal(t, MayArrive, g.Close(), "its fate is not known")
	g.Missed()
	require.Equal(t, NotArrived, g.Close())
	require.False(t, g.Pass())
	before := g.Closings()
	require.Equal(t, NotArrived, g.Close(), "again")
	require.False(t, g.Open(before), "it was closed since")
	require.False(t, g.Pass())
	require.True(t, g.Open(g.Closings()))
	require.True(t, g.Pass())
	g.Reached()
	g.Missed()
	require.Equal(t, MayHaveArrived, g.Close())
	require.True(t, g.Pass())
	g.Shut()
	require.False(t, g.Pass())
}

// A request that is out stays so, however the gate is shut and opened and others are kept from
// passing it.
func TestAGateRemembersWhatIsOut(t *testing.T) {
	t.Parallel()
	var g Gate
	require.True(t, g.Pass())
	g.Shut()
	require.False(t, g.Pass())
	require.True(t, g.Open(g.Closings()))
	require.Equal(t, MayArrive, g.Close())
}

// What an attempt tells the gate: a request that was silent, or had any answer, may have arrived;
// so may one whose fate is not known when the attempt ends.
func TestWhatAnAttemptTellsTheGate(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		change func(p *PluginAttempt)
		during Arrival
		after  Arrival
	}{
		"absent":    {func(p *PluginAttempt) { p.absent = true }, NotArrived, NotArrived},
		"not known": {func(*PluginAttempt) {}, MayArrive, MayHaveArrived},
		"silent, absent": {func(p *PluginAttempt) { p.absent, p.reached = true, true },
			MayHaveArrived, MayHaveArrived},
		"busy": {func(p *PluginAttempt) { p.busy, p.reached = true, true }, MayHaveArrived,
			MayHaveArrived},
	} {
		p, g := &PluginAttempt{sent: true}, new(Gate)
		require.True(t, g.Pass())
		c.change(p)
		p.Tell(g)
		require.Equal(t, c.during, g.Close(), name)
		p.Leave(g)
		require.Equal(t, c.after, g.Close(), name)
		left := new(Gate)
		require.True(t, left.Pass())
		p.Leave(left)
		require.Equal(t, c.after, left.Close(), name)
	}
}
