package index

import (
	"context"
	"maps"
	"os"
	"path/filepath"
	"testing"

	"github.com/nats-io/nats.go"
	"github.com/stretchr/testify/require"

	"worldengine/worldengine/wire"
)

// forged is a log that shows the index some messages otherwise than they are.
type forged struct {
	Source
	// show returns the headers to show of a message, and false to hide it.
	show func(seq uint64, header nats.Header) (nats.Header, bool)
}

func (f forged) EachAfter(
	ctx context.Context, seq uint64, visit func(uint64, string, nats.Header) error,
) error {
	return f.Source.EachAfter(ctx, seq, func(seq uint64, subject string, h nats.Header) error {
		if h, shown := f.show(seq, h); shown {
			return visit(seq, subject, h)
		}
		return nil
	})
}

// compared returns the differences between the file of an index and a log.
func compared(t testing.TB, l *memoryLog, dir string) []Difference {
	t.Helper()
	all, err := Compare(t.Context(), l, dir, "w", l.end)
	require.NoError(t, err)
	return all
}

// Each fault in a file whose checksums are right is found, with its place and both rows.
func TestCompare_PlantedFaults(t *testing.T) {
	t.Parallel()
	l := randomLog(newGenerator(1), 200)
	const bad = 77
	for name, c := range map[string]struct {
		show func(uint64, nats.Header) (nats.Header, bool)
		what string
	}{
		"a row is skipped": {func(seq uint64, h nats.Header) (nats.Header, bool) {
			return h, seq != bad
		}, "the index lacks a row"},
		"a key is changed": {func(seq uint64, h nats.Header) (nats.Header, bool) {
			if seq == bad {
				h = maps.Clone(h)
				h.Set(wire.KeyHeader, "another")
			}
			return h, true
		}, "the index has another row"},
		"a time is changed": {func(seq uint64, h nats.Header) (nats.Header, bool) {
			if seq == bad {
				h = maps.Clone(h)
				h.Set(wire.AtHeader, "2001-01-01T00:00:00.000Z")
			}
			return h, true
		}, "the index has another row"},
	} {
		t.Run(name, func(t *testing.T) {
			dir := t.TempDir()
			rowsOf(t, open(t, forged{l, c.show}, dir))
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
	_, err := Compare(t.Context(), l, dir, "w", 50)
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

// forgetful is a log that forgets messages, and calls then, once it was read.
type forgetful struct {
	*memoryLog
	forgets func(message) bool
	then    func()
}

func (l *forgetful) EachAfter(
	ctx context.Context, seq uint64, visit func(uint64, string, nats.Header) error,
) error {
	err := l.memoryLog.EachAfter(ctx, seq, visit)
	if l.then != nil {
		then := l.then
		l.then = nil
		l.forget(l.forgets)
		then()
	}
	return err
}

// The file of an index that compacts itself while it is compared has no rows of messages that the
// log has forgotten since it was read.
func TestCompare_BesideACompaction(t *testing.T) {
	t.Parallel()
	for seed := range uint64(20) {
		g, dir := newGenerator(seed), t.TempDir()
		log := randomLog(g, 300)
		ix := open(t, log, dir)
		l := &forgetful{log, func(message) bool { return g.IntN(3) == 0 }, func() {
			require.NoError(t, ix.rebuild(t.Context()))
			rowsOf(t, ix)
		}}
		found, err := Compare(t.Context(), l, dir, "w", l.end)
		require.NoError(t, err)
		require.Empty(t, found, "seed %d", seed)
		require.Nil(t, l.then)
	}
}
