package index

import (
	"context"
	"maps"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/stretchr/testify/require"

	"worldengine/worldengine/internal/kit/layout"
)

// compared returns the differences between the file of an index and a log.
func compared(t testing.TB, l *memoryLog, dir string) []Difference {
	t.Helper()
	all, err := compare(t.Context(), l, newFile(dir, "w"), l.end, time.Millisecond)
	require.NoError(t, err)
	return all
}

// Each fault in a file whose checksums are right is found, with its place and both rows.
func TestCompare_PlantedFaults(t *testing.T) {
	t.Parallel()
	l := randomLog(newGenerator(1), 200)
	const bad = 77
	for name, c := range map[string]struct {
		header, value string // that the file has in place of the log's; none if it lacks the row
		what          string
	}{
		"a row is skipped":  {"", "", "the index lacks a row"},
		"a key is changed":  {layout.KeyHeader, "another", "the index has another row"},
		"a time is changed": {layout.AtHeader, "2001-01-01T00:00:00.000Z", "the index has another row"},
	} {
		t.Run(name, func(t *testing.T) {
			forged := &watchedLog{l, func(ctx context.Context, seq uint64, v visit) (uint64, error) {
				return l.EachAfter(ctx, seq, func(seq uint64, subject string, h nats.Header) error {
					switch {
					case seq != bad:
					case c.header == "":
						return nil
					default:
						h = maps.Clone(h)
						h.Set(c.header, c.value)
					}
					return v(seq, subject, h)
				})
			}}
			dir := t.TempDir()
			rowsOf(t, open(t, forged, dir))
			found := compared(t, l, dir)
			require.NotEmpty(t, found)
			require.Equal(t, c.what, found[0].What)
			require.Equal(t, uint64(bad), found[0].Seq)
			require.NotEqual(t, found[0].Want, found[0].Got)
		})
	}
}

// An older file lacks the newest rows, one of a longer log has too many, and a file that cannot be
// read is named with the reason.
func TestCompare_OtherFiles(t *testing.T) {
	t.Parallel()
	g := newGenerator(1)
	l, dir := randomLog(g, 50), t.TempDir()
	body := rowsOf(t, open(t, l, dir))
	require.Empty(t, compared(t, l, dir))

	l.append(g.message())
	older := compared(t, l, dir)
	require.Len(t, older, 1)
	require.Equal(t, "the index lacks a row", older[0].What)
	require.Equal(t, uint64(51), older[0].Seq)

	shorter := &memoryLog{messages: l.messages[:49], end: 49}
	newer := compared(t, shorter, dir)
	require.Len(t, newer, 1)
	require.Equal(t, "the index has a row that the log does not have", newer[0].What)
	require.Equal(t, uint64(50), newer[0].Seq)

	path := filepath.Join(dir, "rows")
	l.messages, l.end = l.messages[:50], 50
	require.NoError(t, os.WriteFile(path, []byte(body+"rest"), 0o600))
	require.Equal(t, "the file of the index has a bad end", compared(t, l, dir)[0].What)
	require.NoError(t, os.WriteFile(path, []byte("x"+body), 0o600))
	require.Equal(t, "the file of the index does not count", compared(t, l, dir)[0].What)
	require.NoError(t, os.Remove(path))
	_, err := compare(t.Context(), l, newFile(dir, "w"), 50, time.Millisecond)
	require.ErrorIs(t, err, os.ErrNotExist)
}

// Rows of messages that the log has forgotten are no difference, whatever else depends on them.
func TestCompare_ForgottenMessages(t *testing.T) {
	t.Parallel()
	for seed := range uint64(50) {
		g := newGenerator(seed)
		l, dir := randomLog(g, 300), t.TempDir()
		rowsOf(t, open(t, l, dir))
		l.forget(func(message) bool { return g.IntN(3) == 0 })
		require.Empty(t, compared(t, l, dir), "seed %d", seed)
	}
}

// The file of an index that compacts itself while it is compared has no rows of messages that the
// log has forgotten since it was read.
func TestCompare_BesideACompaction(t *testing.T) {
	t.Parallel()
	for seed := range uint64(20) {
		g, dir := newGenerator(seed), t.TempDir()
		l, forgot := randomLog(g, 300), false
		ix := open(t, l, dir)
		rowsOf(t, ix)
		forgetful := &watchedLog{l, func(ctx context.Context, seq uint64, v visit) (uint64, error) {
			if !forgot {
				forgot = true
				l.forget(func(message) bool { return g.IntN(3) == 0 })
				require.NoError(t, ix.Rebuild(t.Context()))
				rowsOf(t, ix)
			}
			return l.EachAfter(ctx, seq, v)
		}}
		found, err := compare(t.Context(), forgetful, newFile(dir, "w"), l.end, time.Millisecond)
		require.NoError(t, err)
		require.Empty(t, found, "seed %d", seed)
		require.True(t, forgot)
	}
}
