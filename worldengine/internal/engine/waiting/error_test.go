package waiting_test

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
	"worldengine/worldengine/internal/engine/waiting"
	"worldengine/worldengine/messages"
)

var (
	since      = time.Date(2026, 2, 16, 11, 0, 0, 0, time.FixedZone("", 3600))
	maintained = &messages.PausedBy{
		ActorID: "ada", SignalID: "signal-1", Reason: "maintenance", At: since.UTC()}
)

var rewrite = flag.Bool("rewrite", false, "write testdata/errors.txt anew")

// A client that waited in vain learns who caused it, the effect on the key, and the next step; the
// run that ends has the same reason. testdata/errors.txt has the texts, and below each the end of the
// run, or the error that it is for callers.
func TestError_Texts(t *testing.T) {
	t.Parallel()
	worldPaused := &messages.PausedBy{ActorID: "ada", At: since.UTC()}
	applying := waiting.StillApplying("run-1", "t", apply.Plugin, time.Time{})
	ending := []error{
		waiting.Paused("t", waiting.Reason{Kind: waiting.EndOfPause, Pause: maintained}, "run-2", false),
		waiting.Paused("t", waiting.Reason{Kind: waiting.EndOfPause, Pause: worldPaused, World: true}, "run-2", false),
		waiting.Paused("t", waiting.Reason{Kind: waiting.EndOfPause, Pause: maintained}, "run-2", true),
		waiting.GameAbsent("t", apply.Plugin, since, "run-2", "run-1"),
		waiting.GameAbsent("t", apply.RCON, since, "run-2", "run-1"),
		waiting.GameAbsent("t", apply.Plugin, since, "", "run-1"),
		applying, errors.New("worldengine: the server stops"),
	}
	var got strings.Builder
	for _, err := range ending {
		ends := waiting.CancellationFor(fmt.Errorf("%w", err))
		fmt.Fprintf(&got, "%s\n  ends the run: %s %s %s\n", err, ends.SignalID, ends.Code, ends.Reason)
	}
	for _, err := range []error{
		applying, waiting.StillApplying("run-1", "t", apply.Plugin, since),
		waiting.GameAbsent("t", apply.RCON, since, "run-2", ""),
		waiting.Cancelled("run-1", false), waiting.Cancelled("run-1", true),
	} {
		fmt.Fprintf(&got, "%s\n  is: %v\n", err, errors.Unwrap(err))
	}
	schemastest.Golden(t, "testdata/errors.txt", got.String(), *rewrite)
}

// A retry that waited in vain leaves the run and its key unchanged; its error says so instead of
// the agents' text about the key. Other errors are passed on.
func TestRetryNotJudged(t *testing.T) {
	t.Parallel()
	for says, why := range map[string]*waiting.Error{
		`The town "t" is paused by ada`:         waiting.Paused("t", waiting.Reason{Kind: waiting.EndOfPause, Pause: maintained}, "run-2", false),
		`The town "t" has had no plugin`:        waiting.GameAbsent("t", apply.Plugin, since, "run-2", "run-0"),
		"The retry, run run-2, was cancelled. ": waiting.Cancelled("run-2", false),
	} {
		err := waiting.RetryNotJudged("run-1", fmt.Errorf("around: %w", why))
		require.Equal(t, why.Unwrap(), errors.Unwrap(err))
		require.ErrorContains(t, err, says)
		require.ErrorContains(t, err, "Run run-1 and the result of its key are unchanged")
		require.NotContains(t, err.Error(), "the key is free")
		require.Equal(t, why.Code, err.(*waiting.Error).Code)
	}
	for _, other := range []error{errors.New("other"), nil} {
		require.Equal(t, other, waiting.RetryNotJudged("run-1", other))
	}
}
