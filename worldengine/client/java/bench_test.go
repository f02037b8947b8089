//go:build java

package java_test

import (
	"context"
	"flag"
	"fmt"
	"log/slog"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/stretchr/testify/require"

	"worldengine/handoff"
	"worldengine/schemas"
	"worldengine/worldengine/internal/core/apply"
	"worldengine/worldengine/internal/core/town"
	"worldengine/worldengine/internal/testkit/natstest"
	gokit "worldengine/worldengine/plugin"
	"worldengine/worldengine/wire"
)

var (
	benchFor  = flag.Duration("bench.for", time.Second, "how long the kits are measured")
	benchRate = flag.Int("bench.rate", 200, "commands a second to a game with ticks")
)

const benchTowns = 16

// BenchmarkKit_Rate has the Go kit and the Java kit answer as many commands as they can, with a memory on
// the same disk. The aim is that the Java kit answers at least half as many. Run it with -benchtime=1x.
func BenchmarkKit_Rate(b *testing.B) {
	for b.Loop() {
		nc := natstest.Connect(b)
		inGo := goKit(b, nc)
		b.ReportMetric(rate(b, nc, "go", 0), "go-commands/s")
		inGo()
		p := newPlugin(b, nc.ConnectedUrl())
		p.towns = townsOf("java")
		p.start("")
		b.ReportMetric(rate(b, nc, "java", 0), "java-commands/s")
	}
}

// BenchmarkKit_Ticks measures how long a game with ticks and 64 MB is held by its commands. The aim is
// less than 2 ms a tick, also at the 99th percentile. Run it with -benchtime=1x.
func BenchmarkKit_Ticks(b *testing.B) {
	for b.Loop() {
		measureTicks(b)
	}
}

func measureTicks(t testing.TB) {
	t.Helper()
	nc := natstest.Connect(t)
	p := newPlugin(t, nc.ConnectedUrl())
	p.towns, p.heap, p.ticks = townsOf("java"), "64m", true
	p.start("")
	got := rate(t, nc, "java", *benchRate)
	require.NoError(t, p.command.Process.Signal(syscall.SIGTERM))
	<-p.ended
	var ticks, half, most99, most, used, used99, usedMost int
	held := strings.TrimSpace(p.out.String())
	const micros = "%d µs at the median, %d µs at the 99th percentile, %d µs at most"
	_, err := fmt.Sscanf(held, "%d ticks with tasks, held for "+micros+"; processor time "+micros,
		&ticks, &half, &most99, &most, &used, &used99, &usedMost)
	require.NoError(t, err, held)
	t.Logf("%.0f commands a second in 64 MB: %s", got, held)
}

func townsOf(kit string) []string {
	towns := make([]string, benchTowns)
	for i := range towns {
		towns[i] = fmt.Sprintf("%s-%d", kit, i)
	}
	return towns
}

// goKit serves the towns with the Go kit, until the returned function is called.
func goKit(t testing.TB, nc *nats.Conn) func() {
	t.Helper()
	memory, err := gokit.OpenFile(filepath.Join(t.TempDir(), "memory"), gokit.FileConfig{})
	require.NoError(t, err)
	game := natstest.Dial(t, nc.ConnectedUrl())
	p, err := gokit.Serve(game, gokit.Config{
		Towns: townsOf("go"), Memory: memory, Concurrency: benchTowns, Logger: slog.New(slog.DiscardHandler),
		Apply: func(_ context.Context, c *apply.Command) (apply.GameAnswer, error) { return apply.Done(c), nil },
	})
	require.NoError(t, err)
	return func() {
		require.NoError(t, p.Close(context.Background()))
		require.NoError(t, memory.Close())
		game.Close()
	}
}

// rate asks all towns of a kit for commands, one after the other, and returns how many are applied a second. With
// a limit it is at most that.
func rate(t testing.TB, nc *nats.Conn, kit string, limit int) float64 {
	t.Helper()
	var applied atomic.Int64
	var asking sync.WaitGroup
	requireServed(t, nc, kit)
	began := time.Now()
	for _, townID := range townsOf(kit) {
		asking.Go(func() {
			for i := 0; time.Since(began) < *benchFor && !t.Failed(); i++ {
				if limit > 0 { // each town its part of the rate
					time.Sleep(time.Until(began.Add(time.Duration(i) * time.Second * benchTowns / time.Duration(limit))))
				}
				if err := askOnce(nc, townID, i); err != nil {
					t.Error(err)
					return
				}
				applied.Add(1)
			}
		})
	}
	asking.Wait()
	return float64(applied.Load()) / time.Since(began).Seconds()
}

// requireServed waits until a kit answers for its last town.
func requireServed(t testing.TB, nc *nats.Conn, kit string) {
	t.Helper()
	require.Eventually(t, func() bool { return askOnce(nc, townsOf(kit)[benchTowns-1], -1) == nil }, testTimeout,
		50*time.Millisecond)
}

// askOnce asks for a command, and returns an error unless it is applied.
func askOnce(nc *nats.Conn, townID string, i int) error {
	state := town.NewState(&town.Snapshot{SchemaVersion: town.SchemaVersion, TownID: townID,
		SideQuests: []town.SideQuest{}, Projects: []town.Project{}})
	h, err := handoff.New(handoff.Proposal{Type: handoff.TalkToTownsfolk, ActorID: "a", TownID: townID, Reason: "r",
		Args: map[string]string{"talkType": "casual"}, SnapshotHash: state.Hash, Priority: float64(i+2) / 1e9})
	if err != nil {
		return err
	}
	command := apply.NewCommand(h, "run", state, state)
	command.Deadline = time.Now().Add(testTimeout)
	data, err := command.MarshalWire(time.Now())
	if err != nil {
		return err
	}
	msg, err := nc.Request(wire.ApplySubject(wire.DefaultWorld, wire.TownToken(townID)), data, testTimeout)
	if err != nil {
		return err
	}
	answer, err := apply.ParseAnswer(msg.Data, command.ApplyID, schemas.Limits{})
	if err == nil && answer.Status != apply.Applied {
		err = fmt.Errorf("%s is %s %s", townID, answer.Status, answer.ReasonCode)
	}
	return err
}
