package index

import (
	"fmt"
	"runtime"
	"testing"

	"github.com/nats-io/nats.go"
	"github.com/stretchr/testify/require"

	"worldengine/worldengine/internal/kit/layout"
	"worldengine/worldengine/wire"
)

// million are the runs of the benchmarks, over 10,000 towns; one of them failed.
const million = 1_000_000

func millionth(i int) (string, nats.Header) {
	header := executed(fmt.Sprintf("idem-%064d", i), fmt.Sprintf("run-%032d", i), int64(i)*1000)
	if i == million/2 {
		header.Set(layout.ResultHeader, "failed PROJECT_BLOCKED")
	}
	return layout.LogSubject("w", fmt.Sprintf("town-%d", i%10_000)), header
}

func filled(b *testing.B, dir string) *Index {
	ix := open(b, &memoryLog{}, dir)
	for i := range million {
		subject, header := millionth(i)
		ix.Put(uint64(i)+1, subject, header)
	}
	return ix
}

func BenchmarkPut(b *testing.B) {
	ix := open(b, &memoryLog{}, b.TempDir())
	subject, header := millionth(0)
	keys := make([][]string, 1<<16)
	for i := range keys {
		keys[i] = []string{fmt.Sprintf("idem-%064d", i)}
	}
	seq := uint64(0)
	b.ReportAllocs()
	for b.Loop() {
		seq++
		header[layout.KeyHeader] = keys[seq%(1<<16)]
		header[wire.RunIDHeader] = keys[seq%(1<<16)]
		ix.Put(seq, subject, header)
	}
	require.NoError(b, ix.Close())
}

// BenchmarkMillion asks an index of a million runs.
func BenchmarkMillion(b *testing.B) {
	runtime.GC()
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	dir := b.TempDir()
	ix := filled(b, dir)
	runtime.GC()
	runtime.ReadMemStats(&after)
	b.Run("Memory", func(b *testing.B) {
		for b.Loop() {
		}
		b.ReportMetric(float64(after.HeapAlloc-before.HeapAlloc)/million, "B/row")
	})
	b.Run("Hit", func(b *testing.B) {
		i := 0
		for b.Loop() {
			i = (i + 7919) % million
			_, found := ix.Accepted(fmt.Sprintf("town-%d", i%10_000), fmt.Sprintf("idem-%064d", i))
			require.True(b, found)
		}
	})
	b.Run("Miss", func(b *testing.B) {
		i := 0
		for b.Loop() {
			i++
			_, found := ix.Accepted("town-7", fmt.Sprintf("miss-%064d", i))
			require.False(b, found)
		}
	})
	for name, filter := range map[string]Filter{
		"RareNewest": {Status: "failed"}, "RareOldest": {Status: "failed", Oldest: true},
		"RareType":     {Type: "executed", Status: "failed"},
		"RareTowns":    {Status: "failed", Towns: []string{"town-0", "town-1", "town-2"}},
		"RareTown":     {Status: "failed", Towns: []string{"town-0"}},
		"AfterMark":    {Status: "failed", AfterMark: new(uint64)},
		"UnknownActor": {ActorID: "nobody"},
	} {
		b.Run(name, func(b *testing.B) {
			for b.Loop() {
				ix.Runs(filter, 0, 100)
			}
		})
	}
	require.NoError(b, ix.Close())
	b.Run("Open", func(b *testing.B) {
		for b.Loop() {
			f := newFile(dir, "w")
			s, rest, err := f.read()
			require.NoError(b, err)
			require.Zero(b, rest)
			require.Equal(b, uint32(million), s.count)
		}
	})
	b.Run("Rewrite", func(b *testing.B) {
		for b.Loop() {
			ix.file = newFile(b.TempDir(), "w")
			require.NoError(b, ix.flush())
		}
	})
}
