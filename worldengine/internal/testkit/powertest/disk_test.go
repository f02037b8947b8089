//go:build linux

package powertest

import (
	"math/rand/v2"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// mounted is a mounted disk of a test.
type mounted struct {
	t    *testing.T
	disk *Disk
	dir  string
	end  func()
}

func mount(t *testing.T, d *Disk) *mounted {
	t.Helper()
	m := &mounted{t: t, disk: d, dir: t.TempDir()}
	m.end = d.Use(t, m.dir)
	return m
}

// cut takes the power away, and mounts the disk again.
func (m *mounted) cut(draw *rand.Rand) {
	m.t.Helper()
	after := m.disk.Cut(draw)
	require.Error(m.t, os.WriteFile(filepath.Join(m.dir, "late"), nil, 0o600), "there is no power")
	m.end()
	*m = *mount(m.t, after)
}

func (m *mounted) path(name string) string { return filepath.Join(m.dir, name) }

// write writes a file, and syncs it if sync is set.
func (m *mounted) write(name, content string, sync bool, flags ...int) {
	m.t.Helper()
	flag := os.O_CREATE | os.O_WRONLY | os.O_TRUNC
	for _, f := range flags {
		flag |= f
	}
	f, err := os.OpenFile(m.path(name), flag, 0o640)
	require.NoError(m.t, err)
	_, err = f.WriteString(content)
	require.NoError(m.t, err)
	if sync {
		require.NoError(m.t, f.Sync())
	}
	require.NoError(m.t, f.Close())
}

func (m *mounted) sync(name string) {
	m.t.Helper()
	f, err := os.Open(m.path(name))
	require.NoError(m.t, err)
	require.NoError(m.t, f.Sync())
	require.NoError(m.t, f.Close())
}

// tree returns all files with their contents.
func (m *mounted) tree() map[string]string {
	m.t.Helper()
	all := map[string]string{}
	require.NoError(m.t, filepath.WalkDir(m.dir, func(path string, entry os.DirEntry, err error) error {
		if err == nil && !entry.IsDir() {
			var data []byte
			data, err = os.ReadFile(path)
			all[strings.TrimPrefix(path, m.dir+"/")] = string(data)
		}
		return err
	}))
	return all
}

// Synced writes are there when the power comes back; unsynced ones are gone, if nothing of them reached
// the disk by itself.
func TestDisk_Cut(t *testing.T) {
	NeedFUSE(t)
	long := strings.Repeat("0123456789", 100_000)
	for name, c := range map[string]struct {
		do   func(m *mounted)
		want map[string]string
	}{
		"synced":     {func(m *mounted) { m.write("a", long, true) }, map[string]string{"a": long}},
		"not synced": {func(m *mounted) { m.write("a", long, false) }, map[string]string{}},
		"O_SYNC": {func(m *mounted) { m.write("a", long, false, os.O_SYNC) },
			map[string]string{"a": long}},
		"the name alone": {func(m *mounted) { m.write("a", "x", false); m.sync(".") },
			map[string]string{"a": ""}},
		"a name with the sync of another file": {func(m *mounted) {
			m.write("a", "x", false)
			m.write("b", "y", true)
		}, map[string]string{"a": "", "b": "y"}},
		"a part": {func(m *mounted) {
			m.write("a", "synced", true)
			f, err := os.OpenFile(m.path("a"), os.O_WRONLY|os.O_APPEND, 0)
			require.NoError(m.t, err)
			_, err = f.WriteString(long)
			require.NoError(m.t, err)
			require.NoError(m.t, f.Close())
		}, map[string]string{"a": "synced"}},
		"overwritten": {func(m *mounted) { m.write("a", "old", true); m.write("a", "newer", false) },
			map[string]string{"a": "old"}},
		"replaced, not synced": {func(m *mounted) {
			m.write("a", "old", true)
			m.write("b", "new", false)
			require.NoError(m.t, os.Rename(m.path("b"), m.path("a")))
		}, map[string]string{"a": "old"}},
		"replaced, the name synced": {func(m *mounted) {
			m.write("a", "old", true)
			m.write("b", "new", false)
			require.NoError(m.t, os.Rename(m.path("b"), m.path("a")))
			m.sync(".")
		}, map[string]string{"a": ""}},
		"removed, not synced": {func(m *mounted) {
			m.write("a", "x", true)
			require.NoError(m.t, os.Remove(m.path("a")))
		}, map[string]string{"a": "x"}},
		"removed": {func(m *mounted) {
			m.write("a", "x", true)
			require.NoError(m.t, os.Remove(m.path("a")))
			m.sync(".")
		}, map[string]string{}},
		"a directory and a link": {func(m *mounted) {
			require.NoError(m.t, os.MkdirAll(m.path("d/e"), 0o750))
			m.write("d/e/a", "x", true)
			require.NoError(m.t, os.Link(m.path("d/e/a"), m.path("d/b")))
			require.NoError(m.t, os.Rename(m.path("d/e"), m.path("f")))
			m.sync("f")
			require.NoError(m.t, os.RemoveAll(m.path("d")))
		}, map[string]string{"f/a": "x", "d/b": "x"}},
		"truncated": {func(m *mounted) {
			m.write("a", long, true)
			require.NoError(m.t, os.Truncate(m.path("a"), 5))
			m.sync("a")
			require.NoError(m.t, os.Truncate(m.path("a"), 3))
		}, map[string]string{"a": "01234"}},
	} {
		t.Run(name, func(t *testing.T) {
			m := mount(t, NewDisk())
			c.do(m)
			m.cut(nil)
			require.Equal(t, c.want, m.tree())
			m.cut(nil)
			require.Equal(t, c.want, m.tree(), "nothing changes by itself")
		})
	}
}

// Of the unsynced writes any part may be on the disk; synced ones always are.
func TestDisk_CutDraws(t *testing.T) {
	NeedFUSE(t)
	seen := map[string]int{}
	for seed := range uint64(60) {
		m := mount(t, NewDisk())
		m.write("a", "synced", true)
		m.write("b", "not", false)
		m.write("c", "not", false)
		m.cut(rand.New(rand.NewPCG(seed, 0)))
		tree := m.tree()
		require.Equal(t, "synced", tree["a"])
		_, b := tree["b"]
		_, c := tree["c"]
		require.False(t, c && !b, "names reach the disk in their order")
		seen[tree["b"]]++
		m.end()
	}
	require.Positive(t, seen[""])
	require.Positive(t, seen["not"])
}
