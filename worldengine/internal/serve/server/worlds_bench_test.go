package server

import (
	"context"
	"encoding/json"
	"flag"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"runtime"
	"runtime/debug"
	"runtime/pprof"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"worldengine/testdata/worlds"
	"worldengine/worldengine/internal/engine"
	"worldengine/worldengine/internal/serve/embedded"
)

var (
	benchWorlds   = flag.Int("worlds", 20, "how many worlds BenchmarkWorlds hosts")
	benchDir      = flag.String("worlds-dir", "", "existing directory for the data of BenchmarkWorlds")
	benchIdle     = flag.Duration("worlds-idle", 10*time.Second, "how long BenchmarkWorlds leaves them idle")
	benchProfiles = flag.String("worlds-profiles", "", "directory for profiles of idle worlds")
)

// benchSettleDelay is longer than an engine looks often for commits of an earlier writer.
const benchSettleDelay = 12 * time.Second

// tenTowns is a world file with ten towns.
func tenTowns(t testing.TB) []byte {
	var towns []map[string]any
	require.NoError(t, json.Unmarshal(worlds.Frontier, &towns))
	var ten []map[string]any
	for i := range 10 {
		one := map[string]any{}
		for k, v := range towns[0] {
			one[k] = v
		}
		one["townId"] = fmt.Sprint("town ", i)
		ten = append(ten, one)
	}
	file, err := json.Marshal(ten)
	require.NoError(t, err)
	return file
}

// serveMany starts a server of so many worlds, each with the towns of a file, and waits until all are served.
func serveMany(t testing.TB, config Config, file string, n int) (s *Server, took time.Duration) {
	t.Helper()
	begun := time.Now()
	config.Worlds.Names, config.Worlds.Files = nil, map[string]string{}
	for i := range n {
		name := fmt.Sprint("world-", i)
		config.Worlds.Names = append(config.Worlds.Names, name)
		config.Worlds.Files[name] = file
	}
	s, err := Start(t.Context(), config)
	require.NoError(t, err)
	for _, world := range config.Worlds.Names {
		for s.EngineOf(world) == nil {
			require.Less(t, time.Since(begun), 10*time.Minute, world)
			time.Sleep(time.Millisecond)
		}
	}
	return s, time.Since(begun)
}

// usage is the use of the process.
type usage struct {
	cpu        time.Duration
	resident   int64
	goroutines int
	switches   int64 // of threads: about twice the wake-ups
}

func used(t testing.TB) usage {
	t.Helper()
	debug.FreeOSMemory()
	var r syscall.Rusage
	require.NoError(t, syscall.Getrusage(syscall.RUSAGE_SELF, &r))
	statm, err := os.ReadFile("/proc/self/statm")
	require.NoError(t, err)
	pages, err := strconv.ParseInt(strings.Fields(string(statm))[1], 10, 64)
	require.NoError(t, err)
	return usage{
		cpu:      time.Duration(r.Utime.Nano() + r.Stime.Nano()),
		resident: pages * int64(os.Getpagesize()), goroutines: runtime.NumGoroutine(),
		switches: r.Nvcsw,
	}
}

func profile(t testing.TB, name string) {
	if *benchProfiles == "" {
		return
	}
	file, err := os.Create(filepath.Join(*benchProfiles, name))
	require.NoError(t, err)
	defer file.Close()
	require.NoError(t, pprof.Lookup(name).WriteTo(file, 0))
}

// BenchmarkWorlds measures the worlds of one process on an embedded NATS: how long they take to be
// created and to start again, and what each costs while it is idle.
//
//	go test ./worldengine/internal/serve/server -run - -bench Worlds -benchtime 1x -worlds 1000 -worlds-dir DIR
func BenchmarkWorlds(b *testing.B) {
	dir := *benchDir
	if dir == "" {
		dir = b.TempDir()
	}
	towns := filepath.Join(b.TempDir(), "towns.json")
	require.NoError(b, os.WriteFile(towns, tenTowns(b), 0o600))
	config := Config{
		Embedded: embedded.Config{Listen: "127.0.0.1:0", Data: filepath.Join(dir, "data"), Sync: embedded.SyncInterval},
		Logger:   slog.New(slog.DiscardHandler),
		Engine:   engine.Config{Runs: engine.RunsConfig{Projector: true}},
	}
	end := func(s *Server) (took time.Duration) {
		begun := time.Now()
		ctx, cancel := context.WithTimeout(context.Background(), 5*time.Minute)
		defer cancel()
		require.NoError(b, s.Close(ctx))
		return time.Since(begun)
	}
	for b.Loop() {
		s, _ := serveMany(b, config, towns, 1)
		before := used(b)
		end(s)
		s, created := serveMany(b, config, towns, *benchWorlds)
		b.ReportMetric(created.Seconds(), "s/create")
		b.ReportMetric(end(s).Seconds(), "s/end")
		s, started := serveMany(b, config, towns, *benchWorlds)
		b.ReportMetric(started.Seconds(), "s/start")
		time.Sleep(benchSettleDelay)
		begun := used(b)
		if *benchProfiles != "" {
			file, err := os.Create(filepath.Join(*benchProfiles, "cpu"))
			require.NoError(b, err)
			require.NoError(b, pprof.StartCPUProfile(file))
		}
		time.Sleep(*benchIdle)
		after := used(b)
		pprof.StopCPUProfile()
		profile(b, "heap")
		profile(b, "goroutine")
		each := float64(*benchWorlds)
		b.ReportMetric(float64(after.resident)/1e6, "MB-resident")
		b.ReportMetric(float64(after.resident-before.resident)/1e6/each, "MB/world")
		b.ReportMetric(float64(after.goroutines-before.goroutines)/each, "goroutines/world")
		b.ReportMetric(100*(after.cpu-begun.cpu).Seconds()/benchIdle.Seconds()/each, "%core/world")
		b.ReportMetric(float64(after.switches-begun.switches)/benchIdle.Seconds()/each, "switches/s/world")
		end(s)
	}
}
