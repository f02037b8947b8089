package waiting

import (
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"worldengine/worldengine/apply"
	"worldengine/worldengine/commitlog"
	"worldengine/worldengine/machine"
	"worldengine/worldengine/wire"
)

var (
	since      = time.Date(2026, 2, 16, 10, 0, 0, 0, time.UTC)
	maintained = &commitlog.PausedBy{
		ActorID: "ada", SignalID: "signal-1", Reason: "maintenance", At: since}
)

// The client of a handoff that waited in vain learns who caused it, the effect on the key, and the
// next step; the run that ends has the same reason.
func TestErrors_WaitedInVain(t *testing.T) {
	t.Parallel()
	const townPaused = `The town "t" is paused by ada since 2026-02-16T10:00:00Z: maintenance.`
	const worldPaused = "The world is paused by ada since 2026-02-16T10:00:00Z."
	const absent = `The town "t" has had no plugin since 2026-02-16T10:00:00Z, and the command of ` +
		"run run-1, which is before this one, waits for it."
	for name, c := range map[string]struct {
		err  error
		says []string
		ends machine.Cancellation
	}{
		"a paused town": {&PausedError{TownID: "t", By: maintained},
			[]string{townPaused, "Nothing was judged", "same handoff again"},
			machine.Cancellation{SignalID: "signal-1", Code: "TOWN_PAUSED", Reason: townPaused}},
		"a paused world": {
			&PausedError{World: true, By: &commitlog.PausedBy{ActorID: "ada", At: since}},
			[]string{worldPaused, "Nothing was judged"},
			machine.Cancellation{Code: "WORLD_PAUSED", Reason: worldPaused}},
		"a paused town, and accepted": {&PausedError{TownID: "t", By: maintained, Accepted: true},
			[]string{townPaused, "was accepted before", "for its result"},
			machine.Cancellation{SignalID: "signal-1", Code: "TOWN_PAUSED", Reason: townPaused}},
		"no plugin": {&AbsentError{TownID: "t", Since: since, RunID: "run-2", Before: "run-1"},
			[]string{absent, "Nothing was judged, and the key is free"},
			machine.Cancellation{Code: "PLUGIN_ABSENT", Reason: absent}},
		"no console": {
			&AbsentError{TownID: "t", Via: apply.RCON, Since: since, RunID: "run-2", Before: "run-1"},
			[]string{strings.Replace(absent, "plugin", "console", 1)},
			machine.Cancellation{Code: "PLUGIN_ABSENT",
				Reason: strings.Replace(absent, "plugin", "console", 1)}},
		"no plugin, and no handoff": {&AbsentError{TownID: "t", Since: since, Before: "run-1"},
			[]string{absent, "Nothing was stored", "cancel that run first"},
			machine.Cancellation{Code: "PLUGIN_ABSENT", Reason: absent}},
		"another error": {errors.New("worldengine: the server stops"),
			[]string{"the server stops"},
			machine.Cancellation{
				Reason: "The handoff was not judged: " +
					wire.Sentence(errors.New("worldengine: the server stops"))}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			for _, text := range c.says {
				require.ErrorContains(t, c.err, text)
			}
			require.Equal(t, c.ends, Ends(fmt.Errorf("%w", c.err)))
		})
	}
	accepted := &AbsentError{TownID: "t", Since: since, RunID: "run-2", Accepted: true}
	require.ErrorContains(t, accepted, "is accepted as run run-2")
	require.ErrorContains(t, accepted, `the town "t" has had no plugin since 2026-02-16T10:00:00Z`)
	accepted.Via = apply.RCON
	require.ErrorContains(t, accepted, `the town "t" has had no console since`)
	for isAccepted, says := range map[bool]string{
		false: "Nothing was judged, and the key is free", true: "not asked for any more"} {
		cancelled := &CancelledError{RunID: "run-1", Accepted: isAccepted}
		require.ErrorIs(t, cancelled, machine.ErrRunCancelled)
		require.ErrorContains(t, cancelled, "run run-1")
		require.ErrorContains(t, cancelled, says)
	}
}

// A retry that waited in vain leaves the run and its key unchanged; its error says so instead of
// the agents' text about the key. Other errors are passed on.
func TestOfRetry(t *testing.T) {
	t.Parallel()
	for says, why := range map[string]error{
		`The town "t" is paused by ada`:         &PausedError{TownID: "t", By: maintained},
		`The town "t" has had no plugin`:        &AbsentError{TownID: "t", Before: "run-0"},
		"The retry, run run-2, was cancelled. ": &CancelledError{RunID: "run-2"},
	} {
		err := OfRetry("run-1", fmt.Errorf("around: %w", why))
		require.ErrorIs(t, err, why)
		var ofRetry *RetryError
		require.ErrorAs(t, err, &ofRetry)
		require.Equal(t, "run-1", ofRetry.RunID)
		require.ErrorContains(t, err, says)
		require.ErrorContains(t, err, "Run run-1 is as it was")
		require.NotContains(t, err.Error(), "the key is free")
	}
	other := errors.New("other")
	require.Equal(t, other, OfRetry("run-1", other))
	require.NoError(t, OfRetry("run-1", nil))
}
