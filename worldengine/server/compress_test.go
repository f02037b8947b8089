package server_test

import (
	"fmt"
	"io/fs"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"worldengine/worldengine/commitlog"
	"worldengine/worldengine/server"
	"worldengine/worldengine/town"
	"worldengine/worldengine/wire"
)

// A log whose full blocks are compressed takes less of the disk, and a server that starts again has
// all of it. In a world that was made without, NATS compresses from its second start on.
func TestACompressedLog(t *testing.T) {
	t.Parallel()
	data := t.TempDir()
	in := func(c *server.Config) { c.Data = data }
	all := func(c *server.Config) {
		c.Engine.Compress, c.Engine.DiscardHistory = commitlog.CompressAll, true
	}
	states := fill(t, "plain", 20<<20, in)
	plain := sizeOfLog(t, data)
	require.Greater(t, plain, int64(20<<20), "nothing is compressed by default")
	states = append(states, fill(t, "changed", 1<<20, in, all)...)
	states = append(states, fill(t, "compressed", 40<<20, in)...)

	srv := start(t, in)
	for _, state := range states {
		got, err := srv.Engine().Town(t.Context(), state.Snapshot.TownID)
		require.NoError(t, err)
		require.Equal(t, state.Hash, got.State.Hash)
	}
	// Of the five blocks behind it, NATS compresses the full ones in the background.
	require.Eventually(t, func() bool { return sizeOfLog(t, data) < plain+(30<<20) },
		time.Minute, 50*time.Millisecond)
}

// fill starts a server, puts towns until their states have some bytes, and stops it.
func fill(
	t *testing.T, name string, bytes int, change ...func(*server.Config),
) (states []town.State) {
	t.Helper()
	srv, err := server.Start(t.Context(), configure(change...))
	require.NoError(t, err)
	for written := 0; written < bytes; {
		state := town.NewState(largeSnapshot(fmt.Sprintf("%s-%d", name, len(states))))
		_, err := srv.Engine().Put(t.Context(), state, "")
		require.NoError(t, err)
		states, written = append(states, state), written+len(state.Canonical)
	}
	stop(t, srv)
	return states
}

// largeSnapshot is a town whose state takes about a MiB.
func largeSnapshot(townID string) *town.Snapshot {
	s := &town.Snapshot{SchemaVersion: town.SchemaVersion, TownID: townID}
	for i := range 100 {
		s.SideQuests = append(s.SideQuests, town.SideQuest{
			ID: fmt.Sprintf("quest-%d", i), Title: strings.Repeat(fmt.Sprint("Scout ", i), 1200),
		})
	}
	return s
}

// sizeOfLog returns how many bytes the log of the world main has in a data directory.
func sizeOfLog(t *testing.T, data string) (size int64) {
	t.Helper()
	require.NoError(t, filepath.WalkDir(data, func(path string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() || !strings.Contains(path, wire.LogStream("main")) {
			return nil // what NATS renames meanwhile is counted in the next round
		}
		if info, err := d.Info(); err == nil {
			size += info.Size()
		}
		return nil
	}))
	return size
}
