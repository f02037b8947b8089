package samples

import (
	"bytes"
	"context"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/go-json-experiment/json"
	"github.com/nats-io/nats.go"
	"github.com/stretchr/testify/require"

	"worldengine/runevents"
	"worldengine/worldengine/internal/core/machine"
	"worldengine/worldengine/internal/kit/layout"
	"worldengine/worldengine/internal/store/index"
	"worldengine/worldengine/messages"
	"worldengine/worldengine/wire"
)

// sampled is a time at the begin of an hour.
var sampled = time.Date(2026, 2, 16, 10, 0, 0, 0, time.UTC)

// log is a log in memory.
type log struct{ messages []message }

type message struct {
	seq     uint64
	subject string
	header  nats.Header
}

func (l *log) End(context.Context) (uint64, error) { return l.messages[len(l.messages)-1].seq, nil }

func (l *log) Messages(context.Context) (uint64, error) { return uint64(len(l.messages)), nil }

// Limits says that the log may have forgotten everything.
func (l *log) Limits() index.Limits { return index.Limits{} }

func (l *log) EachAfter(
	_ context.Context, seq uint64, visit func(uint64, string, nats.Header) error,
) (end uint64, err error) {
	for _, m := range l.messages {
		if end = m.seq; m.seq > seq {
			if err := visit(m.seq, m.subject, m.header); err != nil {
				return 0, err
			}
		}
	}
	return end, nil
}

func (l *log) append(subject string, header nats.Header) {
	seq := uint64(1)
	if n := len(l.messages); n > 0 {
		seq += l.messages[n-1].seq
	}
	l.messages = append(l.messages, message{seq, subject, header})
}

// open opens an index of a log in a directory, and waits for the end of the log.
func open(t *testing.T, l *log, dir string) *SampledIndex {
	t.Helper()
	ix, err := Open(t.Context(), index.Config{World: "w", Source: l, Dir: dir, Logger: slog.New(slog.DiscardHandler)})
	require.NoError(t, err)
	_, err = ix.CatchUp(t.Context())
	require.NoError(t, err)
	return ix
}

// endedAfter returns the header of a handoff that ended so long after the sampled time, and arrived so
// long before that.
func endedAfter(run, result string, after, took time.Duration) nats.Header {
	return nats.Header{
		layout.KindHeader: {string(machine.KindConcluded)}, layout.KeyHeader: {"key " + run}, wire.RunIDHeader: {run},
		layout.AtHeader: {runevents.Timestamp(sampled.Add(after))}, layout.ResultHeader: {result},
		layout.ArrivedHeader:       {runevents.Timestamp(sampled.Add(after - took))},
		layout.RunEventTypesHeader: {"RunStarted,RunCompleted"},
	}
}

func (ix *SampledIndex) hour(towns ...string) []messages.Sample {
	return ix.wholeHour(towns...).Samples
}

func (ix *SampledIndex) wholeHour(towns ...string) messages.Samples {
	return ix.Samples(towns, sampled, sampled.Add(time.Hour), 10*time.Minute, sampled.Add(55*time.Minute))
}

// The percentiles of all samples are of all their handoffs: one slow one in a quiet step hides none of
// the fast ones in another.
func TestIndex_SamplesTogether(t *testing.T) {
	t.Parallel()
	l := &log{}
	l.append(layout.LogSubject("w", "a"), nats.Header{layout.KindHeader: {string(machine.KindPut)}})
	ix := open(t, l, "")
	defer ix.Close()
	require.Nil(t, ix.wholeHour().P50Ms)
	for range 200 {
		ix.Answered("fast", sampled.Add(time.Minute), 3*time.Millisecond)
	}
	ix.Answered("slow", sampled.Add(31*time.Minute), 55*time.Second)
	all := ix.wholeHour()
	require.Equal(t, []int64{3, 3}, []int64{*all.P50Ms, *all.P99Ms})
	require.InDelta(t, 55_000, *all.Samples[3].P50Ms, 8_000)
	require.Equal(t, time.Minute.Milliseconds()*10, all.StepMs)
}

// TestIndex_Samples: each handoff counts once, when it ended, and waits from its arrival on.
func TestIndex_Samples(t *testing.T) {
	t.Parallel()
	l, dir := &log{}, t.TempDir()
	add := func(town string, h nats.Header) { l.append(layout.LogSubject("w", town), h) }
	add("a", endedAfter("1", "executed EXECUTED", time.Minute, 2*time.Millisecond))
	add("a", endedAfter("2", "stale STALE", 2*time.Minute, 40*time.Millisecond))
	add("a", nats.Header{layout.KindHeader: {string(machine.KindPut)}}) // the newest stays
	add("b", endedAfter("3", "executed EXECUTED", 21*time.Minute, 12*time.Minute))
	waiting := endedAfter("4", "", 30*time.Minute, time.Second)
	waiting.Set(layout.KindHeader, string(machine.KindRunEvents))
	waiting.Set(layout.RunEventTypesHeader, "RunQueued")
	waiting.Set(layout.TownTokenHeader, "b")
	waiting.Del(layout.ResultHeader)
	l.append(layout.RunSubject("w", "4"), waiting)
	ix := open(t, l, dir)
	ix.Answered("1", sampled.Add(time.Minute), 2*time.Millisecond)
	ix.Answered("2", sampled.Add(2*time.Minute), 40*time.Millisecond)
	ix.Answered("3", sampled.Add(21*time.Minute), 12*time.Minute)
	all := ix.hour()
	require.Len(t, all, 6)
	require.Equal(t, runevents.Timestamp(sampled), all[0].At)
	require.Equal(t, map[string]int64{"executed": 1, "stale": 1}, all[0].Results)
	require.Equal(t, []int64{2, 38}, []int64{*all[0].P50Ms, *all[0].P99Ms})
	require.InDelta(t, 0.1, all[0].Waiting, 0.01, "one minute of ten")
	require.Equal(t, map[string]int64{}, all[1].Results)
	require.Nil(t, all[1].P50Ms)
	require.InDelta(t, 1, all[1].Waiting, 0.01)
	require.InDelta(t, 720_000, *all[2].P99Ms, 90_000)
	require.InDelta(t, 1, all[3].Waiting, 0.01, "it goes on")
	require.InDelta(t, 1, all[5].Waiting, 0.01, "the step has lasted five minutes")
	require.Equal(t, map[string]int64{"executed": 1}, ix.hour("b")[2].Results)
	require.Equal(t, all[2].P99Ms, ix.hour("b")[2].P99Ms)
	require.Equal(t, all[3].Waiting, ix.hour("b")[3].Waiting)
	require.Empty(t, ix.hour("b")[0].Results)
	require.Empty(t, ix.hour("nowhere")[0].Results)

	// They outlast the rows, a restart, and a row that is read again.
	require.NoError(t, ix.Close())
	l.messages = l.messages[2:] // the log has forgotten the others
	ix = open(t, l, dir)
	require.Equal(t, all, ix.hour())
	require.NoError(t, ix.Rebuild(t.Context()))
	require.Equal(t, all, ix.hour())
	require.Empty(t, ix.hour("a")[0].Results)
	require.NoError(t, ix.Close())
	add("a", endedAfter("5", "executed EXECUTED", 3*time.Minute, 0))
	for range 2 { // the row is new to the index, and then in its file
		ix = open(t, l, dir)
		require.Equal(t, map[string]int64{"executed": 2, "stale": 1}, ix.hour()[0].Results)
		require.NoError(t, ix.Close())
	}
	file := filepath.Join(dir, "samples")
	data, err := os.ReadFile(file)
	require.NoError(t, err)
	data = bytes.ReplaceAll(data, []byte(`"took"`), []byte(`"tool"`))
	require.NoError(t, os.WriteFile(file, data, 0o600))
	ix = open(t, l, dir)
	ix.Answered("5", sampled.Add(3*time.Minute), 0) // a changed name must not stop the server
	require.NoError(t, ix.Close())
	require.NoError(t, os.WriteFile(file, []byte("nonsense"), 0o600))
	ix = open(t, l, dir)
	require.Equal(t, map[string]int64{"executed": 1}, ix.hour()[0].Results, "those that the log has")
	require.NoError(t, ix.Close())
}

// The samples of a log that was replaced count for no other log, even if the other one has as many messages.
func TestIndex_SamplesOfAnotherLog(t *testing.T) {
	t.Parallel()
	dir, town := t.TempDir(), layout.LogSubject("w", "a")
	for n, want := range []map[string]int64{{"executed": 1}, {"stale": 1}} {
		l := &log{}
		l.append(town, endedAfter("1", []string{"executed EXECUTED", "stale STALE"}[n],
			time.Duration(n+1)*time.Minute, time.Second))
		ix := open(t, l, dir)
		require.Equal(t, want, ix.hour()[0].Results)
		require.NoError(t, ix.Close())
	}
}

// The samples of an earlier program count, and the runs behind them once.
func TestIndex_SamplesOfEarlierProgram(t *testing.T) {
	t.Parallel()
	for name, later := range map[string]int{"no later run": 0, "later runs": 2} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			l, dir, town := &log{}, t.TempDir(), layout.LogSubject("w", "a")
			l.append(town, endedAfter("1", "executed EXECUTED", time.Minute, time.Second))
			counts := map[string]any{"position": 1, "minutes": []minute{}}
			ix := open(t, l, dir)
			ix.counted.Minutes.addRun(index.EndedRun{Outcome: "stale", At: sampled}) // which the log has forgotten
			counts["minutes"] = ix.counted.Minutes
			require.NoError(t, ix.Close())
			data, err := json.Marshal(counts)
			require.NoError(t, err)
			require.NoError(t, os.WriteFile(filepath.Join(dir, "samples"), data, 0o600))
			for n := range later {
				l.append(town, endedAfter(fmt.Sprint(2+n), "executed EXECUTED", 2*time.Minute, time.Second))
			}
			for range 2 {
				ix = open(t, l, dir)
				require.Equal(t, map[string]int64{"executed": 1 + int64(later), "stale": 1}, ix.hour()[0].Results)
				require.NoError(t, ix.Close())
			}
		})
	}
}

// TestSamples_Bounded: a day is kept, and every time has a bucket of about its size.
func TestSamples_Bounded(t *testing.T) {
	t.Parallel()
	l := &log{}
	for n := range 3 * keptMinutes {
		l.append(layout.LogSubject("w", "a"), endedAfter(string(rune(n)), "executed EXECUTED",
			time.Duration(n)*time.Minute, time.Duration(n)*time.Hour))
	}
	ix := open(t, l, "")
	defer ix.Close()
	for n := range int64(3 * keptMinutes) {
		kept := ix.counted.Minutes.minute(sampled.UnixMilli()/perMinute+n) != nil
		require.Equal(t, n >= 2*keptMinutes, kept, n)
	}
	for ms := int64(0); ms < 60_000_000; ms += 1 + ms/7 {
		low := bucketMin(bucket(ms))
		require.LessOrEqual(t, low, ms)
		require.LessOrEqual(t, float64(ms-low), float64(ms)/8+1, ms)
	}
}
