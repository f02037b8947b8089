package index

import (
	"bytes"
	"context"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"worldengine/worldengine/internal/kit/layout"
)

// shuffled puts messages in an order in which each comes at most a few places too early.
func shuffled(g *generator, messages []message, ix *Index) {
	order := slices.Clone(messages)
	for i := range order {
		j := min(len(order)-1, i+g.IntN(6))
		order[i], order[j] = order[j], order[i]
	}
	for _, m := range order {
		ix.Put(m.seq, m.subject, m.header)
	}
}

// An index that grew with the log has the bytes of one that is rebuilt from it: with messages out
// of order, messages that only the log has, closed and opened again, and torn files.
func TestFile_GrownEqualsRebuilt(t *testing.T) {
	t.Parallel()
	for seed := range uint64(10) {
		g := newGenerator(seed)
		l, dir := &memoryLog{}, t.TempDir()
		for range 4 {
			ix := open(t, l, dir)
			var own []message
			for range 60 {
				if m := l.append(g.message()); g.IntN(10) > 0 {
					own = append(own, m)
				}
			}
			shuffled(g, own, ix)
			if g.IntN(2) == 0 {
				_, err := ix.CatchUp(t.Context())
				require.NoError(t, err)
			}
			body := rowsOf(t, ix)
			cut := len(body) - g.IntN(200)
			require.NoError(t, os.Truncate(filepath.Join(dir, "rows"), int64(cut)))
		}
		ix := open(t, l, dir)
		requireResults(t, g, newOracle(l.messages), ix)
		require.Equal(t, rebuilt(t, l), rowsOf(t, ix), "seed %d", seed)
	}
}

// A file that was cut off anywhere, or has a wrong bit, is brought up to date.
func TestFile_Damaged(t *testing.T) {
	t.Parallel()
	l := randomLog(newGenerator(1), 8)
	want := rebuilt(t, l)
	dir := t.TempDir()
	damage := func(body []byte) {
		require.NoError(t, os.WriteFile(filepath.Join(dir, "rows"), body, 0o600))
		require.Equal(t, want, rowsOf(t, open(t, l, dir)))
	}
	for cut := range len(want) {
		damage([]byte(want[:cut]))
	}
	for at := 0; at < len(want); at += 7 {
		body := []byte(want)
		body[at] ^= 1 << (at % 8)
		damage(body)
	}
	damage([]byte(strings.ReplaceAll(want, " w", " v")))
	damage([]byte(want + "rest"))
	damage([]byte(want + want))
}

// A file that does not count, and one with a bad end, are logged with the reason.
func TestOpen_Logs(t *testing.T) {
	t.Parallel()
	l, dir := randomLog(newGenerator(1), 8), t.TempDir()
	var logged bytes.Buffer
	logs := func(c *Config) { c.Logger = slog.New(slog.NewTextHandler(&logged, nil)) }
	reopened := func(body string) string {
		require.NoError(t, os.WriteFile(filepath.Join(dir, "rows"), []byte(body), 0o600))
		logged.Reset()
		rowsOf(t, open(t, l, dir, logs))
		return logged.String()
	}
	body := rowsOf(t, open(t, l, dir, logs))
	require.Contains(t, logged.String(), "no such file")
	require.Contains(t, reopened("x"), "damaged, or of another world or format")
	require.Contains(t, reopened(body[:len(body)-1]), "had a bad end")
	require.NotContains(t, reopened(body), "file")
}

// The rows that a log has lost, or has otherwise, are reported and set aside.
func TestOpen_LogLostItsEnd(t *testing.T) {
	t.Parallel()
	for name, lose := range map[string]func(g *generator, l *memoryLog){
		"end": func(_ *generator, l *memoryLog) { l.messages, l.end = l.messages[:20], 20 },
		"end, and went on": func(g *generator, l *memoryLog) {
			l.messages, l.end = slices.Clone(l.messages[:20]), 20
			for range 40 {
				g.at += 7
				l.append(g.message())
			}
		},
		"end, and history": func(_ *generator, l *memoryLog) {
			l.messages, l.end = l.messages[15:20], 20
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			g := newGenerator(3)
			l, dir := randomLog(g, 30), t.TempDir()
			old := rowsOf(t, open(t, l, dir))
			o := newOracle(l.messages)
			lose(g, l)
			var lost []RowView
			ix := open(t, l, dir, func(c *Config) { c.OnLost = func(rows []RowView) { lost = rows } })
			require.Equal(t, rowsIn(o.rows[20:]), lost)
			aside, err := os.ReadFile(filepath.Join(dir, "rows.lost-30"))
			require.NoError(t, err)
			require.Equal(t, old, string(aside))
			require.Equal(t, rebuilt(t, l), rowsOf(t, ix))
		})
	}
}

// An index that has read on in the log of another history finds its lost rows before that place.
func TestIndex_LostUpTo(t *testing.T) {
	t.Parallel()
	g := newGenerator(5)
	l := randomLog(g, 30)
	o := newOracle(l.messages)
	ix := open(t, l, "")
	l.messages, l.end = slices.Clone(l.messages[:15]), 15
	for range 40 {
		g.at += 7
		l.append(g.message())
	}
	_, err := ix.CatchUp(t.Context())
	require.NoError(t, err)
	for _, upTo := range []uint64{30, 29} {
		lost, err := ix.FindLost(t.Context(), upTo)
		require.NoError(t, err)
		require.Equal(t, rowsIn(o.rows[15:upTo]), lost)
	}
	lost, err := ix.FindLost(t.Context(), 15)
	require.NoError(t, err)
	require.Empty(t, lost)
	l.lose(func(m message) bool { return 25 <= m.seq && m.seq <= 30 })
	lost, err = ix.FindLost(t.Context(), 30)
	require.NoError(t, err)
	require.Equal(t, rowsIn(o.rows[15:30]), lost, "by an older row, if the log has discarded the newest")
	require.NoError(t, ix.Close())
}

// A log whose last messages have expired is asked for them once, since NATS takes long to say that
// there are none.
func TestIndex_LostAtAnExpiredEnd(t *testing.T) {
	t.Parallel()
	l := randomLog(newGenerator(1), 30)
	ix := open(t, l, "")
	l.lose(func(m message) bool { return m.seq > 20 })
	inVain := 0
	ix.config.Source = &watchedLog{l, func(ctx context.Context, seq uint64, v visit) (uint64, error) {
		if seq >= 20 {
			inVain++
		}
		return l.EachAfter(ctx, seq, v)
	}}
	lost, err := ix.FindLost(t.Context(), 30)
	require.NoError(t, err)
	require.Empty(t, lost)
	require.Equal(t, 1, inVain)
	require.NoError(t, ix.Close())
}

func TestNames(t *testing.T) {
	t.Parallel()
	rows := []RowView{{Seq: 1, Town: "t", Kind: "put"}, {Seq: 2, Kind: "control"}}
	require.Equal(t, "log sequence 2 of town none (control); log sequence 1 of town t (put)",
		DescribeRows(rows))
	require.Contains(t, DescribeRows(make([]RowView, 12)), "; and 2 more")
	require.Empty(t, DescribeRows(nil))
}

// History that the log has forgotten, the newest rows too, does not count as lost.
func TestOpen_LogForgot(t *testing.T) {
	t.Parallel()
	g := newGenerator(4)
	l, dir := randomLog(g, 30), t.TempDir()
	rowsOf(t, open(t, l, dir))
	l.append(g.message())
	l.forget(func(m message) bool { return m.seq < 10 || m.seq == 30 })
	ix := open(t, l, dir, func(c *Config) { c.OnLost = func([]RowView) { t.Error("lost") } })
	require.Equal(t, 31, ix.Rows())
	require.NoError(t, ix.Close())
}

// A file that is deleted under a running index is written again, with the same bytes.
func TestIndex_RewritesADeletedFile(t *testing.T) {
	t.Parallel()
	g := newGenerator(5)
	l, dir := randomLog(g, 30), t.TempDir()
	ix := open(t, l, dir)
	path := filepath.Join(dir, "rows")
	there := func() bool { _, err := os.Stat(path); return err == nil }
	require.Eventually(t, there, time.Minute, 10*time.Millisecond)
	require.NoError(t, os.Remove(path))
	m := l.append(g.message())
	ix.Put(m.seq, m.subject, m.header)
	require.Eventually(t, there, time.Minute, 10*time.Millisecond)
	requireFound(t, newOracle(l.messages), ix)
	require.Equal(t, rebuilt(t, l), rowsOf(t, ix))
}

// A file that cannot be written stops nothing, and is written when it can be.
func TestIndex_FileCannotBeWritten(t *testing.T) {
	t.Parallel()
	l, dir := randomLog(newGenerator(6), 30), t.TempDir()
	path := filepath.Join(dir, "rows")
	require.NoError(t, os.Mkdir(path, 0o700))
	ix := open(t, l, dir)
	requireFound(t, newOracle(l.messages), ix)
	require.Error(t, ix.Close())
	require.NoError(t, os.Remove(path))
	require.Equal(t, rebuilt(t, l), rowsOf(t, open(t, l, dir)))
}

// A compacted index is one that was rebuilt, with the messages that came meanwhile.
func TestIndex_Compact(t *testing.T) {
	t.Parallel()
	g := newGenerator(7)
	l, dir := randomLog(g, 60), t.TempDir()
	ix := open(t, l, dir)
	l.forget(func(m message) bool { return m.seq%3 > 0 })
	l.append(g.message())
	ahead := l.append(g.message())
	ix.Put(ahead.seq, ahead.subject, ahead.header)
	require.NoError(t, ix.Rebuild(t.Context()))
	require.Equal(t, ahead.seq, ix.Position())
	m := l.append(g.message())
	ix.Put(m.seq, m.subject, m.header)
	requireFound(t, newOracle(l.messages), ix)
	requireTowns(t, newOracle(l.messages), ix)
	require.Equal(t, rebuilt(t, l), rowsOf(t, ix))
}

// A compaction keeps the messages that come while it reads the log.
func TestIndex_CompactsBesidePut(t *testing.T) {
	t.Parallel()
	g := newGenerator(8)
	l := randomLog(g, 60)
	ix := open(t, l, t.TempDir())
	done := make(chan error)
	go func() { done <- ix.Rebuild(t.Context()) }()
	for running := true; running; {
		select {
		case err := <-done:
			require.NoError(t, err)
			running = false
		default:
			m := l.append(g.message())
			ix.Put(m.seq, m.subject, m.header)
		}
	}
	require.Equal(t, l.end, ix.Position())
	require.Equal(t, rebuilt(t, l), rowsOf(t, ix))
}

// A reader that waits for a message wakes if a compaction is the first to read it.
func TestIndex_CompactionWakesReaders(t *testing.T) {
	t.Parallel()
	g := newGenerator(8)
	l := randomLog(g, 60)
	ix := open(t, l, "")
	moved := ix.Moved(l.append(g.message()).seq)
	require.NoError(t, ix.Rebuild(t.Context()))
	select {
	case <-moved:
	default:
		require.Fail(t, "nobody wakes the reader")
	}
	require.NoError(t, ix.Close())
}

// A gap is read from the log while a compaction takes long.
func TestIndex_ReadsAGapBesideACompaction(t *testing.T) {
	t.Parallel()
	g := newGenerator(9)
	l, begun, letGo := randomLog(g, 60), make(chan struct{}, 2), make(chan struct{}, 2)
	letGo <- struct{}{}
	stopped := &watchedLog{l, func(ctx context.Context, seq uint64, v visit) (uint64, error) {
		if seq == 0 {
			begun <- struct{}{}
			<-letGo
		}
		return l.EachAfter(ctx, seq, v)
	}}
	ix := open(t, stopped, t.TempDir())
	<-begun
	done := make(chan error)
	go func() { done <- ix.Rebuild(t.Context()) }()
	<-begun
	other := l.append(g.message())
	require.NoError(t, ix.Wait(t.Context(), other.seq))
	letGo <- struct{}{}
	require.NoError(t, <-done)
	require.Equal(t, rebuilt(t, l), rowsOf(t, ix))
}

// Only an index of many rows, most of them of forgotten messages, compacts itself.
func TestIndex_CompactsItselfWhenMostIsForgotten(t *testing.T) {
	t.Parallel()
	l := &memoryLog{count: compactRows}
	ix := open(t, l, "")
	for i := range compactRows + 1 {
		ix.Put(uint64(i)+1, layout.LogSubject("w", "t"), executed(fmt.Sprint(i), fmt.Sprint(i), 1))
	}
	for i := range compactRows + 1 {
		seq, _ := ix.Accepted("t", fmt.Sprint(i))
		require.EqualValues(t, i+1, seq)
	}
	require.NoError(t, ix.compact(t.Context()))
	require.Equal(t, compactRows+1, ix.Rows())
	l.mu.Lock()
	l.end, l.count = compactRows+1, 2
	l.messages = []message{{compactRows + 1, layout.LogSubject("w", "t"), executed("last", "last", 1)}}
	l.mu.Unlock()
	require.Eventually(t, func() bool { return ix.Rows() == 1 }, time.Minute, time.Millisecond)
	require.EqualValues(t, compactRows+1, ix.Position())
	require.NoError(t, ix.Close())
}

// New rows get into the file also while a compaction reads the log.
func TestIndex_WritesBesideACompaction(t *testing.T) {
	t.Parallel()
	l, dir, compacts := &memoryLog{count: compactRows}, t.TempDir(), make(chan struct{})
	ix := open(t, &watchedLog{l, func(ctx context.Context, _ uint64, _ visit) (uint64, error) {
		close(compacts)
		<-ctx.Done()
		return 0, ctx.Err()
	}}, dir)
	for i := range compactRows + 1 {
		ix.Put(uint64(i)+1, layout.LogSubject("w", "t"), executed(fmt.Sprint(i), fmt.Sprint(i), 1))
	}
	l.mu.Lock()
	l.end, l.count = compactRows+1, 2
	l.mu.Unlock()
	<-compacts
	ix.Put(compactRows+2, layout.LogSubject("w", "t"), executed("new", "new", 1))
	require.Eventually(t, func() bool {
		s, _, err := newFile(dir, "w").read()
		return err == nil && s.position == compactRows+2
	}, time.Minute, 10*time.Millisecond)
	require.NoError(t, ix.Close())
}

// A file of any bytes is read without a panic, and the rows that it has would be read again. With
// sealed, the bytes are lengths and payloads of frames that get the right checksums.
func FuzzReadRows(f *testing.F) {
	body := rebuilt(f, randomLog(newGenerator(1), 20))
	f.Add([]byte(body), false)
	f.Add([]byte(body)[:len(body)-1], false)
	head := newFile("", "w").head
	row := new(entry{rowFields: rowFields{Seq: 1}, town: "t"}).encode(nil)
	f.Add(slices.Concat([]byte{byte(len(head))}, []byte(head), []byte{byte(len(row))}, row), true)
	f.Fuzz(func(t *testing.T, body []byte, sealed bool) {
		if sealed {
			body = seal(body)
		}
		s, good, err := readRows(bytes.NewReader(body), head, int64(len(body)))
		if err != nil {
			return
		}
		require.LessOrEqual(t, good, int64(len(body)))
		var again bytes.Buffer
		require.NoError(t, new(file{head: head}).append(&again, s))
		size := again.Len()
		twice, good, err := readRows(&again, head, int64(size))
		require.NoError(t, err)
		require.EqualValues(t, size, good)
		require.Equal(t, s.count, twice.count)
		for n := range s.count {
			require.Equal(t, *s.row(n + 1), *twice.row(n + 1))
		}
	})
}

// seal makes frames of lengths and payloads.
func seal(body []byte) (frames []byte) {
	for len(body) >= 1 {
		end := min(1+int(body[0]), len(body))
		frames = appendFrame(frames, body[1:end])
		body = body[end:]
	}
	return frames
}
