package server_test

import (
	"crypto/sha256"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/nats-io/nats.go/jetstream"
	"github.com/stretchr/testify/require"

	"worldengine/handoff"
	"worldengine/worldengine/internal/kit/layout"
	"worldengine/worldengine/internal/serve/server"
	"worldengine/worldengine/internal/store/backup"
	"worldengine/worldengine/internal/store/commitlog"
	"worldengine/worldengine/internal/store/fsck"
	"worldengine/worldengine/internal/store/streamdirs"
	"worldengine/worldengine/internal/store/worldsettings"
	"worldengine/worldengine/internal/testkit/natstest"
	"worldengine/worldengine/wire"
)

// changedWorld makes a world whose setting require-approval was changed from none. It returns the
// data directories before and after the change, and a handoff that needs an approval after it.
func changedWorld(t *testing.T) (before, after string, wall []byte) {
	t.Helper()
	before = t.TempDir()
	w := newWorld(t)
	after = w.Config.Embedded.Data
	w.putTown("t")
	wall = w.wall(w.town("t"))
	w.Stop()
	require.NoError(t, os.CopyFS(before, os.DirFS(after)))
	w.start()
	_, err := worldsettings.Change(t.Context(), w.streams(), w.world,
		worldsettings.Settings{RequireApproval: "PROJECT_ADVANCE"}, false)
	require.NoError(t, err)
	w.Stop()
	return before, after, wall
}

// copied returns a copy of a data directory.
func copied(t *testing.T, data string) string {
	t.Helper()
	to := filepath.Join(t.TempDir(), "data")
	require.NoError(t, os.CopyFS(to, os.DirFS(data)))
	_ = os.Remove(filepath.Join(to, "operator.nk")) // its copy may be read by others
	return to
}

// directory of a stream in a data directory.
func directory(data, stream string) string {
	return filepath.Join(data, "jetstream", "$G", "streams", stream)
}

// harm changes the directories of streams in a data directory, as a kill or a loss of power leaves
// them. before is the data directory before the last change of the settings.
type harm func(t *testing.T, data, before string)

// old puts files of a stream back as they were before the change.
func old(stream string, files ...string) harm {
	return func(t *testing.T, data, before string) {
		for _, file := range files {
			content, err := os.ReadFile(filepath.Join(directory(before, stream), file))
			require.NoError(t, err)
			require.NoError(t, os.WriteFile(filepath.Join(directory(data, stream), file), content, 0o640))
		}
	}
}

// removeFiles removes files or directories of a stream.
func removeFiles(stream string, files ...string) harm {
	return func(t *testing.T, data, _ string) {
		for _, file := range files {
			path := filepath.Join(directory(data, stream), file)
			_, err := os.Stat(path)
			require.NoError(t, err)
			require.NoError(t, os.RemoveAll(path))
		}
	}
}

// cut keeps the first bytes of a file of a stream.
func cut(stream, file string, size int64) harm {
	return func(t *testing.T, data, _ string) {
		require.NoError(t, os.Truncate(filepath.Join(directory(data, stream), file), size))
	}
}

// empty keeps the directory of a stream alone.
func empty(stream string) harm {
	return func(t *testing.T, data, _ string) {
		require.NoError(t, os.RemoveAll(directory(data, stream)))
		require.NoError(t, os.Mkdir(directory(data, stream), 0o750))
	}
}

func both(all ...harm) harm {
	return func(t *testing.T, data, before string) {
		for _, h := range all {
			h(t, data, before)
		}
	}
}

// Whatever a kill amid a change of the settings, or a loss of power, leaves of the configuration of a
// stream: the settings in the log count, no record is lost, and the server says in its log that it
// repaired something.
func TestStreamDirs_Repaired(t *testing.T) {
	t.Parallel()
	before, after, wall := changedWorld(t)
	log, alerts := layout.LogStream("main"), layout.AlertStream("main")
	for name, c := range map[string]struct {
		harm harm
		says string
	}{
		"the record alone":               {old(log, "meta.inf", "meta.sum"), "did not follow"},
		"the configuration without sum":  {removeFiles(log, "meta.sum"), "checksum is repaired"},
		"old configuration, new sum":     {old(log, "meta.inf"), "checksum is repaired"},
		"new configuration, old sum":     {old(log, "meta.sum"), "checksum is repaired"},
		"an empty sum":                   {cut(log, "meta.sum", 0), "checksum is repaired"},
		"half a configuration":           {cut(log, "meta.inf", 100), "configuration of a stream is lost"},
		"an empty configuration":         {cut(log, "meta.inf", 0), "configuration of a stream is lost"},
		"no configuration":               {removeFiles(log, "meta.inf"), "configuration of a stream is lost"},
		"neither configuration nor sum":  {removeFiles(log, "meta.inf", "meta.sum"), "configuration of a stream is lost"},
		"no sum of the alerts":           {removeFiles(alerts, "meta.sum"), "checksum is repaired"},
		"an empty directory for alerts":  {empty(alerts), "it is removed"},
		"half configurations everywhere": {both(cut(log, "meta.inf", 1), cut(alerts, "meta.inf", 1)), "is lost"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			data, out := copied(t, after), new(natstest.Buffer)
			c.harm(t, data, before)
			if c.says != "did not follow" {
				requireUntouchedByCheck(t, data)
			}
			w := newWorld(t, logged(out), func(c *server.Config) { c.Embedded.Data = data })
			require.Contains(t, out.String(), c.says)
			require.Equal(t, "PROJECT_ADVANCE", w.Server.Engine().Settings().RequireApproval)
			requireUnapproved(t, w.send(wall), handoff.ReasonApprovalRequired, takesApproval)
			report, err := fsck.Run(t.Context(), w.streams().Conn(), "main", fsck.Options{})
			require.NoError(t, err)
			require.Empty(t, report.Findings)
			w.restart()
			requireUnapproved(t, w.send(wall), handoff.ReasonApprovalRequired, takesApproval)
			config := w.log().CachedInfo().Config
			require.EqualValues(t, worldsettings.DefaultHistoryPerTown, config.MaxMsgsPerSubject)
			require.True(t, config.DenyDelete && config.DenyPurge && config.AllowMsgTTL)
		})
	}
}

// requireUntouchedByCheck compares the settings with a damaged world's, and asserts that the check says
// so and leaves each file as it is.
func requireUntouchedByCheck(t *testing.T, data string) {
	t.Helper()
	before := fingerprints(t, data)
	config := configure(func(c *server.Config) { c.Embedded.Data = data })
	_, err := server.CheckSettings(t.Context(), config, "main")
	require.ErrorContains(t, err, "when the server starts")
	require.Equal(t, before, fingerprints(t, data))
}

// fingerprints returns the hash of each file below a directory.
func fingerprints(t *testing.T, dir string) map[string]string {
	t.Helper()
	all := map[string]string{}
	require.NoError(t, filepath.WalkDir(dir, func(path string, entry fs.DirEntry, err error) error {
		if err != nil || entry.IsDir() {
			return err
		}
		content, err := os.ReadFile(path)
		all[path] = fmt.Sprintf("%x", sha256.Sum256(content))
		return err
	}))
	return all
}

// The messages of a stream whose configuration is lost are kept.
func TestStreamDirs_MessagesKept(t *testing.T) {
	t.Parallel()
	data := t.TempDir()
	w := newWorld(t, withBus, open, func(c *server.Config) { c.Embedded.Data = data })
	w.executes(w.wall(w.putTown("t")))
	for range 3 {
		_, err := w.nc.Request(wire.AlertSubject("main", "X"), []byte("{}"), time.Minute)
		require.NoError(t, err)
	}
	js, err := jetstream.New(w.nc)
	require.NoError(t, err)
	ends := func() map[string]uint64 {
		messages := map[string]uint64{}
		for name, state := range commitlog.StreamStates(t.Context(), js, "main") {
			messages[name] = state.Msgs
		}
		return messages
	}
	eventually(t, func() bool { return ends()[wire.EventStream("main")] >= 10 })
	want := ends()
	w.Stop()
	for _, name := range layout.Streams("main") {
		if _, err := os.Stat(directory(data, name)); err == nil {
			cut(name, "meta.inf", 20)(t, data, "")
		}
	}
	w.start()
	js, err = jetstream.New(w.nc)
	require.NoError(t, err)
	require.Equal(t, want, ends())
}

// A server does not start if it cannot repair a stream, and says how an operator goes on.
func TestStreamDirs_Refused(t *testing.T) {
	t.Parallel()
	_, after, _ := changedWorld(t)
	earlier := filepath.Join(t.TempDir(), "data")
	unpack(t, "data", earlier)
	log := layout.LogStream("main")
	for name, c := range map[string]struct {
		data string
		harm harm
		want error
	}{
		"no directory of the log":       {after, removeFiles(log, "."), worldsettings.ErrLogMissing},
		"an empty directory of the log": {after, empty(log), worldsettings.ErrLogMissing},
		"no messages":                   {after, removeFiles(log, "meta.inf", "msgs"), worldsettings.ErrLogMissing},
		"no message files": {after, both(removeFiles(log, "msgs"), func(t *testing.T, data, _ string) {
			require.NoError(t, os.WriteFile(filepath.Join(directory(data, log), "msgs"), nil, 0o600))
		}), streamdirs.ErrLost},
		"an earlier program's, without its settings": {earlier, cut(log, "meta.inf", 0),
			worldsettings.ErrSettingsLost},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			data := copied(t, c.data)
			c.harm(t, data, "")
			for range 2 {
				_, err := server.Start(t.Context(), configure(func(c *server.Config) { c.Embedded.Data = data }))
				require.ErrorIs(t, err, c.want)
				require.ErrorContains(t, err, "restore a backup")
			}
		})
	}
}

// All settings, given anew, serve a world that has lost them.
func TestStreamDirs_SettingsGiven(t *testing.T) {
	t.Parallel()
	data := filepath.Join(t.TempDir(), "data")
	unpack(t, "data", data)
	cut(layout.LogStream("main"), "meta.inf", 0)(t, data, "")
	w := newWorld(t, func(c *server.Config) {
		c.Embedded.Data = data
		c.Engine.Settings = worldsettings.Settings{RequireApproval: "PROJECT_ADVANCE"}.
			WithDefaults(worldsettings.Default())
		c.Engine.Storage.DiscardHistory = true
	})
	require.Equal(t, "PROJECT_ADVANCE", w.Server.Engine().Settings().RequireApproval)
	w.restart(func(c *server.Config) {
		c.Engine.Settings, c.Engine.Storage.DiscardHistory = worldsettings.Settings{}, false
	})
	require.Equal(t, "PROJECT_ADVANCE", w.Server.Engine().Settings().RequireApproval)
}

// A kill while NATS makes the first stream of a world leaves a directory with nothing in it. The next
// start makes the world.
func TestStreamDirs_KilledAtCreation(t *testing.T) {
	t.Parallel()
	data := t.TempDir()
	for _, sub := range []string{"msgs", "obs"} {
		require.NoError(t, os.MkdirAll(filepath.Join(directory(data, layout.LogStream("main")), sub), 0o750))
	}
	w := newWorld(t, func(c *server.Config) { c.Embedded.Data = data })
	w.executes(w.wall(w.putTown("t")))
}

// Streams of an unfinished restore that NATS cannot read neither serve nor stop the next restore, and
// a mark that was being removed is none.
func TestStreamDirs_Restore(t *testing.T) {
	t.Parallel()
	_, after, wall := changedWorld(t)
	from := filepath.Join(t.TempDir(), "backup")
	w := newWorld(t, func(c *server.Config) { c.Embedded.Data = copied(t, after) })
	_, err := backup.Create(t.Context(), w.streams().Conn(), from, backup.Options{})
	require.NoError(t, err)
	mark := layout.RestoringStream("main")
	for name, c := range map[string]struct {
		harm   harm
		served bool
	}{
		"unfinished": {both(made(mark), cut(layout.LogStream("main"), "meta.inf", 9),
			removeFiles(layout.AlertStream("main"), "meta.sum")), false},
		"a mark without sum": {both(made(mark), removeFiles(mark, "meta.sum")), false},
		"a mark in removal":  {both(made(mark), removeFiles(mark, "meta.inf")), true},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			data := copied(t, after)
			c.harm(t, data, "")
			in := func(c *server.Config) { c.Embedded.Data = data }
			if !c.served {
				_, err := server.Start(t.Context(), configure(in))
				require.ErrorIs(t, err, commitlog.ErrHalfRestored)
				_, err = server.Restore(t.Context(), configure(in), from, backup.RestoreOptions{World: "main"})
				require.NoError(t, err)
			}
			w := newWorld(t, in)
			requireUnapproved(t, w.send(wall), handoff.ReasonApprovalRequired, takesApproval)
		})
	}
}

// made makes a stream without messages, as NATS does.
func made(stream string) harm {
	return func(t *testing.T, data, _ string) {
		elsewhere := start(t, open)
		js, err := jetstream.New(connected(t, elsewhere.URL()))
		require.NoError(t, err)
		_, err = js.CreateStream(t.Context(), jetstream.StreamConfig{Name: stream})
		require.NoError(t, err)
		require.NoError(t, os.CopyFS(directory(data, stream),
			os.DirFS(directory(filepath.Dir(elsewhere.OperatorKey()), stream))))
	}
}

// NATS removes the directory of a stream that it cannot open. The server puts it back, so that the
// world is whole when the trouble is over.
func TestStreamDirs_PutBack(t *testing.T) {
	t.Parallel()
	_, after, wall := changedWorld(t)
	data := copied(t, after)
	log := directory(data, layout.LogStream("main"))
	require.NoError(t, os.RemoveAll(filepath.Join(log, "obs")))
	require.NoError(t, os.WriteFile(filepath.Join(log, "obs"), nil, 0o600))
	in := func(c *server.Config) { c.Embedded.Data = data }
	for range 2 {
		_, err := server.Start(t.Context(), configure(in))
		require.ErrorIs(t, err, streamdirs.ErrLost)
	}
	require.NoError(t, os.Remove(filepath.Join(log, "obs")))
	w := newWorld(t, in)
	requireUnapproved(t, w.send(wall), handoff.ReasonApprovalRequired, takesApproval)
}
