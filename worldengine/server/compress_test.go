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
// all of it.
func TestACompressedLog(t *testing.T) {
	t.Parallel()
	data := t.TempDir()
	in := func(c *server.Config) { c.Data = data }
	srv, err := server.Start(t.Context(), configure(in, func(c *server.Config) {
		c.Engine.Compress = commitlog.CompressAll
	}))
	require.NoError(t, err)
	var states []town.State
	const towns = 24
	for i := range towns { // more than two blocks of 8 MiB
		states = append(states, town.NewState(largeSnapshot(fmt.Sprintf("large-%d", i))))
		_, err := srv.Engine().Put(t.Context(), states[i], "")
		require.NoError(t, err)
	}
	written := towns * int64(len(states[0].Canonical))
	require.Greater(t, written, int64(20<<20))
	require.Eventually(t, func() bool { // a full block is compressed in the background
		return sizeOfLog(t, data) < written/2+(8<<20)
	}, time.Minute, 50*time.Millisecond)
	stop(t, srv)

	srv = start(t, in)
	for _, state := range states {
		got, err := srv.Engine().Town(t.Context(), state.Snapshot.TownID)
		require.NoError(t, err)
		require.Equal(t, state.Hash, got.State.Hash)
	}
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
