package systemtest_test

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"

	"worldengine/worldengine"
	"worldengine/worldengine/fsck"
	"worldengine/worldengine/wire"
)

// behead removes the messages before a sequence from the files of the log, while no server runs,
// like the loss of its first block.
func (w *checkedWorld) behead(from uint64) {
	w.t.Helper()
	w.close()
	block, err := os.ReadFile(w.logBlock())
	require.NoError(w.t, err)
	at, _ := placeInBlock(block, from)
	require.NoError(w.t, os.WriteFile(w.logBlock(), block[at:], 0o640))
	require.NoError(w.t, os.Remove(filepath.Join(filepath.Dir(w.logBlock()), "index.db")))
	w.open()
}

// A log without its first block differs from one with full histories by the messages that a town
// should have. A repair does not hide that.
func TestFsck_FirstBlockLost(t *testing.T) {
	w := newCheckedWorld(t, worldengine.Config{})
	state := w.found("t")
	for range 6 {
		state = w.talk(state)
	}
	w.found("founded behind the block")
	w.clean()
	w.behead(4)

	for _, options := range []fsck.Options{{}, {Repair: true}} {
		report := w.fsck(options)
		require.False(t, report.Clean())
		require.Equal(t, []fsck.Finding{{
			Stream: wire.LogStream("main"), Sequence: 4, Subject: wire.LogSubject("main", "t"),
			Town: "t", What: "the log has lost the beginning of the town's history",
			Want: "a message before it", Got: "none, and 5 of the 10000 that the history keeps",
		}}, report.Findings)
	}
	w.talk(state)
}

// A history that was full before its limit was raised is whole.
func TestFsck_HistoryRaised(t *testing.T) {
	w := newCheckedWorld(t, worldengine.Config{HistoryPerTown: 3})
	state := w.found("t")
	for range 5 {
		state = w.talk(state)
	}
	for _, history := range []int64{20, 30, 0} {
		w.close()
		w.config.Engine.HistoryPerTown, w.config.Engine.DiscardHistory = history, history > 0
		w.open()
		state = w.talk(state)
		w.clean()
	}
	w.behead(w.logEnd() - 1)
	require.False(t, w.fsck(fsck.Options{}).Clean(), "fewer than the least that it ever kept")
}
