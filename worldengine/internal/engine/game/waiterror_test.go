package game_test

import (
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"worldengine/worldengine/internal/core/apply"
	"worldengine/worldengine/internal/core/machine"
	"worldengine/worldengine/internal/engine/game"
	"worldengine/worldengine/internal/kit/phrase"
	"worldengine/worldengine/messages"
)

var (
	since      = time.Date(2026, 2, 16, 11, 0, 0, 0, time.FixedZone("", 3600))
	maintained = &messages.PausedBy{
		ActorID: "ada", SignalID: "signal-1", Reason: "maintenance", At: since.UTC()}
)

// A client that waited in vain learns who caused it, the effect on the key, and the next step; the
// run that ends has the same reason.
func TestWaitError_Texts(t *testing.T) {
	t.Parallel()
	const townPaused = `The town "t" is paused by ada since 2026-02-16T10:00:00Z: maintenance.`
	const worldPaused = "The world is paused by ada since 2026-02-16T10:00:00Z."
	const absent = `The town "t" has had no plugin since 2026-02-16T10:00:00Z, and the command of ` +
		"run run-1, which is before this one, waits for it."
	noConsole := strings.Replace(absent, "plugin", "console", 1)
	const applying = "the handoff is accepted and its command is being applied; send the same " +
		"handoff again to get its result (run run-1)"
	stops := errors.New("worldengine: the server stops")
	for _, c := range []struct {
		err  error
		text string
		ends machine.Cancellation
	}{
		{game.PausedError("t", false, maintained, "run-2", false),
			townPaused + " Nothing was judged; send the same handoff again after the pause.",
			machine.Cancellation{SignalID: "signal-1", Code: "TOWN_PAUSED", Reason: townPaused}},
		{game.PausedError("t", true, &messages.PausedBy{ActorID: "ada", At: since.UTC()}, "run-2", false),
			worldPaused + " Nothing was judged; send the same handoff again after the pause.",
			machine.Cancellation{Code: "WORLD_PAUSED", Reason: worldPaused}},
		{game.PausedError("t", false, maintained, "run-2", true),
			townPaused + " The handoff was accepted before, and its command is applied after the " +
				"pause; send the same handoff again then for its result.",
			machine.Cancellation{SignalID: "signal-1", Code: "TOWN_PAUSED", Reason: townPaused}},
		{game.AbsentError("t", apply.Plugin, since, "run-2", "run-1"),
			absent + " Nothing was judged, and the key is free; send the same handoff again when the " +
				"game is back.",
			machine.Cancellation{Code: "PLUGIN_ABSENT", Reason: absent}},
		{game.AbsentError("t", apply.RCON, since, "run-2", "run-1"),
			noConsole + " Nothing was judged, and the key is free; send the same handoff again when " +
				"the game is back.",
			machine.Cancellation{Code: "PLUGIN_ABSENT", Reason: noConsole}},
		{game.AbsentError("t", apply.Plugin, since, "", "run-1"),
			absent + " Nothing was stored; send the request again when the game is back, or cancel " +
				"that run first.",
			machine.Cancellation{Code: "PLUGIN_ABSENT", Reason: absent}},
		{game.StillApplying("run-1", "t", apply.Plugin, time.Time{}), applying,
			machine.Cancellation{Reason: "The handoff was not judged: " + applying}},
		{stops, "the server stops",
			machine.Cancellation{Reason: "The handoff was not judged: " + phrase.Sentence(stops)}},
	} {
		require.EqualError(t, c.err, "worldengine: "+c.text)
		require.Equal(t, c.ends, game.CancellationFor(fmt.Errorf("%w", c.err)))
	}
	for _, c := range []struct {
		err   *game.WaitError
		text  string
		cause error
	}{
		{game.AbsentError("t", apply.RCON, since, "run-2", ""), "the handoff is accepted as run run-2, and " +
			`its command goes on waiting: the town "t" has had no console since ` +
			"2026-02-16T10:00:00Z; send the same handoff again to get its result, or cancel the run",
			nil},
		{game.CancelledError("run-1", false), "the run was cancelled while the handoff was waiting: run " +
			"run-1. Nothing was judged, and the key is free: the same handoff may be sent again.",
			machine.ErrRunCancelled},
		{game.CancelledError("run-1", true), "the run was cancelled while the handoff was waiting: run " +
			"run-1. Its command is not asked for any more, and the key is free: the same handoff may " +
			"be sent again.", machine.ErrRunCancelled},
		{game.StillApplying("run-1", "t", apply.Plugin, time.Time{}), applying, game.ErrInProgress},
		{game.StillApplying("run-1", "t", apply.Plugin, since), "the handoff is accepted as run run-1, " +
			`and its command goes on waiting: the town "t" has had no plugin since ` +
			"2026-02-16T10:00:00Z; send the same handoff again to get its result, or cancel the run",
			game.ErrInProgress},
	} {
		require.EqualError(t, c.err, "worldengine: "+c.text)
		require.Equal(t, c.cause, errors.Unwrap(c.err))
	}
}

// A retry that waited in vain leaves the run and its key unchanged; its error says so instead of
// the agents' text about the key. Other errors are passed on.
func TestOfRetry(t *testing.T) {
	t.Parallel()
	for says, why := range map[string]*game.WaitError{
		`The town "t" is paused by ada`:         game.PausedError("t", false, maintained, "run-2", false),
		`The town "t" has had no plugin`:        game.AbsentError("t", apply.Plugin, since, "run-2", "run-0"),
		"The retry, run run-2, was cancelled. ": game.CancelledError("run-2", false),
	} {
		err := game.RetryError("run-1", fmt.Errorf("around: %w", why))
		require.Equal(t, why.Unwrap(), errors.Unwrap(err))
		require.ErrorContains(t, err, says)
		require.ErrorContains(t, err, "Run run-1 and the result of its key are unchanged")
		require.NotContains(t, err.Error(), "the key is free")
		require.Equal(t, why.Code, err.(*game.WaitError).Code)
	}
	for _, other := range []error{errors.New("other"), nil} {
		require.Equal(t, other, game.RetryError("run-1", other))
	}
}
