package plugin_test

import (
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"worldengine/worldengine/internal/core/apply"
	"worldengine/worldengine/plugin"
)

var started = time.Date(2026, 2, 16, 10, 0, 0, 0, time.UTC)

func quiet(config plugin.FileConfig) plugin.FileConfig {
	config.Logger = slog.New(slog.DiscardHandler)
	if config.Now == nil {
		config.Now = func() time.Time { return started }
	}
	return config
}

func open(t *testing.T, path string, config plugin.FileConfig) *plugin.File {
	t.Helper()
	file, err := plugin.OpenFile(path, quiet(config))
	require.NoError(t, err)
	t.Cleanup(func() { _ = file.Close() })
	return file
}

// record is the nth command's: begun, or answered with status.
func record(n int, status apply.Status) plugin.Record {
	r := plugin.Record{
		ApplyID: fmt.Sprintf("handoff_%064d", n), TownID: "a town\n№1", Attempt: 1, At: started,
	}
	if status != "" {
		r.Answer = &apply.GameAnswer{SchemaVersion: apply.AnswerVersion, ApplyID: r.ApplyID,
			Status: status}
	}
	return r
}

func put(t *testing.T, file *plugin.File, records ...plugin.Record) {
	t.Helper()
	for _, r := range records {
		require.NoError(t, file.Put(r))
	}
}

func requireRecords(t *testing.T, file *plugin.File, records ...plugin.Record) {
	t.Helper()
	for _, want := range records {
		got, ok := file.Get(want.ApplyID)
		require.True(t, ok, want.ApplyID)
		require.Equal(t, want, got)
	}
}

func TestFile_Remembers(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "memory")
	file := open(t, path, plugin.FileConfig{})
	told := record(2, apply.Refused)
	told.Answer.ReasonCode, told.Answer.Message, told.Answer.Retryable = "PROTECTED_AREA",
		"line\nline", true
	snapshot := record(3, apply.Applied)
	snapshot.Answer.Snapshot = []byte(`{"day":4}`)
	put(t, file, record(1, ""), record(2, ""), told, record(3, ""), snapshot, record(4, ""),
		record(5, apply.Busy))
	for range 2 {
		requireRecords(t, file, record(1, ""), told, snapshot, record(4, ""), record(5, apply.Busy))
		require.Equal(t, []plugin.Record{record(1, ""), record(4, "")}, file.Unfinished())
		_, ok := file.Get(record(6, "").ApplyID)
		require.False(t, ok)
		require.NoError(t, file.Close())
		file = open(t, path, plugin.FileConfig{})
	}
	require.NoError(t, file.Close())
	require.NoError(t, file.Close())
	require.ErrorIs(t, file.Put(record(6, "")), plugin.ErrBroken)
}

// A crash may leave any part of the last record. The records before it survive, and the next one
// has its own line.
func TestFile_TornRecord(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "memory")
	file := open(t, path, plugin.FileConfig{})
	put(t, file, record(1, ""), record(1, apply.Applied), record(2, ""))
	require.NoError(t, file.Close())
	before, err := os.ReadFile(path)
	require.NoError(t, err)
	file = open(t, path, plugin.FileConfig{})
	put(t, file, record(2, apply.Applied))
	require.NoError(t, file.Close())
	after, err := os.ReadFile(path)
	require.NoError(t, err)
	require.Equal(t, before, after[:len(before)])

	for size := len(before); size <= len(after); size++ {
		for name, torn := range map[string][]byte{
			"short":  after[:size],
			"zeroed": append(append([]byte{}, after[:size]...), make([]byte, len(after)-size)...),
		} {
			require.NoError(t, os.WriteFile(path, torn, 0o600))
			file = open(t, path, plugin.FileConfig{})
			want := record(2, "")
			if size == len(after) {
				want = record(2, apply.Applied)
			}
			requireRecords(t, file, record(1, apply.Applied), want)
			put(t, file, record(3, ""))
			require.NoError(t, file.Close())
			file = open(t, path, plugin.FileConfig{})
			requireRecords(t, file, record(1, apply.Applied), want, record(3, ""))
			require.NoError(t, file.Close(), name)
		}
	}
}

func TestFile_NoMemory(t *testing.T) {
	t.Parallel()
	const header = `{"memory":"worldengine-plugin.v1"}` + "\n"
	for name, test := range map[string]struct {
		content string
		want    error
	}{
		"another file":     {"url: nats://127.0.0.1\n", plugin.ErrNotMemory},
		"part of a header": {header[:5], plugin.ErrNotMemory},
		"another version":  {strings.ReplaceAll(header, "v1", "v2"), plugin.ErrNotMemory},
		"damage in the middle": {header + "{\"applyId\":\n{\"applyId\":\"a\"}\n",
			plugin.ErrCorrupt},
		"a record without its id": {header + "{}\n{\"applyId\":\"a\"}\n", plugin.ErrCorrupt},
	} {
		path := filepath.Join(t.TempDir(), "memory")
		require.NoError(t, os.WriteFile(path, []byte(test.content), 0o600))
		for range 2 { // the lock is released
			_, err := plugin.OpenFile(path, quiet(plugin.FileConfig{}))
			require.ErrorIs(t, err, test.want, name)
			require.ErrorContains(t, err, path)
		}
		data, err := os.ReadFile(path)
		require.NoError(t, err)
		require.Equal(t, test.content, string(data), name)
	}
	_, err := plugin.OpenFile(t.TempDir(), quiet(plugin.FileConfig{}))
	require.ErrorContains(t, err, "the memory cannot be read")
	_, err = plugin.OpenFile(filepath.Join(t.TempDir(), "missing", "memory"),
		quiet(plugin.FileConfig{}))
	require.Error(t, err)
}

func TestFile_Empty(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "memory")
	require.NoError(t, os.WriteFile(path, nil, 0o600))
	// A file that a crash left while it was rewritten.
	require.NoError(t, os.WriteFile(path+".new", []byte("half a"), 0o600))
	file := open(t, path, plugin.FileConfig{})
	put(t, file, record(1, apply.Applied))
	require.NoError(t, file.Close())
	requireRecords(t, open(t, path, plugin.FileConfig{}), record(1, apply.Applied))
}

func TestFile_Locked(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "memory")
	file := open(t, path, plugin.FileConfig{})
	_, err := plugin.OpenFile(path, quiet(plugin.FileConfig{}))
	require.ErrorIs(t, err, plugin.ErrLocked)
	require.NoError(t, file.Close())
	open(t, path, plugin.FileConfig{})
}

func TestFile_ForgetsTheOldest(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "memory")
	now := started
	config := plugin.FileConfig{MaxRecords: 3, Retention: time.Hour, Now: func() time.Time {
		return now
	}}
	file := open(t, path, config)
	put(t, file, record(0, ""))
	for n := 1; n <= 6; n++ {
		put(t, file, record(n, ""), record(n, apply.Applied))
	}
	for range 2 {
		requireRecords(t, file, record(0, ""), record(5, apply.Applied), record(6, apply.Applied))
		for n := 1; n <= 4; n++ {
			_, ok := file.Get(record(n, "").ApplyID)
			require.False(t, ok, n)
		}
		require.NoError(t, file.Close())
		file = open(t, path, config)
	}
	now = now.Add(time.Hour + 1)
	late := record(7, apply.Applied)
	late.At = now
	put(t, file, late)
	require.Empty(t, file.Unfinished(), "its time is over as well")
	_, ok := file.Get(record(6, "").ApplyID)
	require.False(t, ok)
	requireRecords(t, file, late)
}

func TestFile_Compaction(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "memory")
	config := plugin.FileConfig{MaxRecords: 10}
	file := open(t, path, config)
	put(t, file, record(0, ""))
	largest := int64(0)
	for n := 1; n <= 1500; n++ {
		put(t, file, record(n, apply.Applied))
		info, err := os.Stat(path)
		require.NoError(t, err)
		largest = max(largest, info.Size())
	}
	info, err := os.Stat(path)
	require.NoError(t, err)
	require.Less(t, info.Size(), largest/2)
	for range 2 {
		requireRecords(t, file, record(0, ""), record(1500, apply.Applied), record(1492, apply.Applied))
		require.NoError(t, file.Close())
		file = open(t, path, config)
	}
}

func TestFile_FailedCompaction(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "memory")
	file := open(t, path, plugin.FileConfig{MaxRecords: 10})
	require.NoError(t, os.Mkdir(path+".new", 0o700))
	for n := range 1100 {
		put(t, file, record(n, apply.Applied))
	}
	for range 2 {
		requireRecords(t, file, record(1099, apply.Applied))
		require.NoError(t, file.Close())
		file = open(t, path, plugin.FileConfig{MaxRecords: 10})
	}
}
