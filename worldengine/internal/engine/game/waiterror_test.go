package game_test

import (
	"errors"
	"flag"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"worldengine/schemas/schemastest"
	"worldengine/worldengine/internal/core/apply"
	"worldengine/worldengine/internal/engine/game"
	"worldengine/worldengine/messages"
)

var (
	since      = time.Date(2026, 2, 16, 11, 0, 0, 0, time.FixedZone("", 3600))
	maintained = &messages.PausedBy{
		ActorID: "ada", SignalID: "signal-1", Reason: "maintenance", At: since.UTC()}
)

var rewrite = flag.Bool("rewrite", false, "write testdata/waiterrors.txt anew")

// A client that waited in vain learns who caused it, the effect on the key, and the next step; the
// run that ends has the same reason. testdata/waiterrors.txt has the texts, and below each the end of the
// run, or the error that it is for callers.
func TestWaitError_Texts(t *testing.T) {
	t.Parallel()
	worldPaused := &messages.PausedBy{ActorID: "ada", At: since.UTC()}
	applying := game.StillApplying("run-1", "t", apply.Plugin, time.Time{})
	ending := []error{
		game.PausedError("t", false, maintained, "run-2", false),
		game.PausedError("t", true, worldPaused, "run-2", false),
		game.PausedError("t", false, maintained, "run-2", true),
		game.AbsentError("t", apply.Plugin, since, "run-2", "run-1"),
		game.AbsentError("t", apply.RCON, since, "run-2", "run-1"),
		game.AbsentError("t", apply.Plugin, since, "", "run-1"),
		applying, errors.New("worldengine: the server stops"),
	}
	var got strings.Builder
	for _, err := range ending {
		ends := game.CancellationFor(fmt.Errorf("%w", err))
		fmt.Fprintf(&got, "%s\n  ends the run: %s %s %s\n", err, ends.SignalID, ends.Code, ends.Reason)
	}
	for _, err := range []error{
		applying, game.StillApplying("run-1", "t", apply.Plugin, since),
		game.AbsentError("t", apply.RCON, since, "run-2", ""),
		game.CancelledError("run-1", false), game.CancelledError("run-1", true),
	} {
		fmt.Fprintf(&got, "%s\n  is: %v\n", err, errors.Unwrap(err))
	}
	schemastest.Golden(t, "testdata/waiterrors.txt", got.String(), *rewrite)
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
