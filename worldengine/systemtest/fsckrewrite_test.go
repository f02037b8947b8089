package systemtest_test

import (
	"context"
	"log/slog"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"worldengine/dedupe"
	"worldengine/worldengine"
	"worldengine/worldengine/commitlog"
	"worldengine/worldengine/fsck"
)

// A repair keeps followers out, and lets them in again even when it is stopped in the middle. One
// that was killed there is found, and the next repair lets them in.
func TestFsckLetsFollowersInAgain(t *testing.T) {
	w := newCheckedWorld(t, worldengine.Config{}).populate()
	subjects := func() []string {
		info, err := w.receipts().Info(t.Context())
		require.NoError(t, err)
		return info.Config.Subjects
	}
	open := []string{dedupe.All.Subject("main")}
	right := w.receipt(w.executed)
	w.publish(right.Subject, right.Header, []byte("{}"))
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() {
		_, err := fsck.Run(ctx, w.nc, "main", fsck.Options{
			Repair: true, Logger: slog.New(slog.DiscardHandler),
		})
		ended <- err
	}()
	require.Eventually(t, func() bool {
		return subjects()[0] != open[0]
	}, 20*time.Second, 20*time.Millisecond)
	cancel()
	require.ErrorIs(t, <-ended, commitlog.ErrLogUnavailable)
	require.Equal(t, open, subjects())

	config := w.receipts().CachedInfo().Config
	config.Subjects = []string{"world.main.receipts-repair.*.*"}
	_, err := w.js.UpdateStream(t.Context(), config)
	require.NoError(t, err)
	report := w.fsck(impatient)
	require.Equal(t, "the stream does not listen on the subject that followers publish to",
		report.Findings[0].What)
	w.repaired()
	require.Equal(t, open, subjects())
}

// All receipts are gone while a server counts with them.
func TestFsckFindsAnEmptyReceiptStream(t *testing.T) {
	w := newCheckedWorld(t, worldengine.Config{}).populate()
	require.NoError(t, w.receipts().Purge(t.Context()))
	require.Equal(t, "the stream ends before the log does", only(t, w.fsck(impatient)).What)
	w.repaired()
}
