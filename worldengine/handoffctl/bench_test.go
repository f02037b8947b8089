package handoffctl

import (
	"context"
	"math"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"worldengine/worldengine/internal/core/town"
	"worldengine/worldengine/internal/engine"
	"worldengine/worldengine/internal/tool/bench"
)

// small are the flags of a benchmark that is over soon.
var small = []string{"bench", "--duration", "20ms", "--towns", "8", "--concurrency", "4",
	"--connections", "2"}

func TestBench_PrivateServer(t *testing.T) {
	c := offline(t)
	text := c.ok(append(small, "--phases", "3", "--rate", "500", "-o", "json")...)
	report := decode[bench.Report](t, text)
	assert.Zero(t, report.Wrong, report.Examples)
	assert.Positive(t, report.HandoffBytes)
	assert.True(t, report.InProcess)
	assert.Equal(t, "interval", report.Sync)
	require.Len(t, report.Phases, 3)
	for _, phase := range report.Phases {
		assert.Positive(t, phase.CPUMicros)
		assert.InDelta(t, phase.PerSecond, phase.Executed, 1e-6)
	}
	assert.Equal(t, report.Phases[2], bench.Phase{Rate: report.Handoffs, Costs: report.Costs})
	require.NotNil(t, report.Append, report.AppendUnknown)
	assert.Greater(t, report.Append.Bytes, report.ResultBytes, "a commit has the result, and more")
	assert.InDelta(t, report.Executed/report.Append.PerSecond, report.OfAppend, 1e-6)
	assert.InDelta(t, report.Executed/report.Echo.PerSecond, report.Ratio, 1e-6)

	// The members that scripts read.
	members := decode[map[string]any](t, text)
	for _, name := range []string{"executedPerSecond", "cpuMicrosPerHandoff", "ratio",
		"ratioToAppend"} {
		assert.Positive(t, members[name], name)
	}
	assert.Positive(t, members["handoffs"].(map[string]any)["p99Ms"])
	assert.Positive(t, members["handoffs"].(map[string]any)["count"])
	assert.Positive(t, members["phases"].([]any)[1].(map[string]any)["perSecond"])
}

// A load on one world takes turns with one spread over all worlds, and with a flood.
func TestBench_Worlds(t *testing.T) {
	c := offline(t)
	command := append(small, "--phases", "2", "--rate", "500", "--worlds", "3", "--flood", "5", "-o", "json")
	var report bench.Report
	// On a busy machine it takes long until a town of the flood gets its second handoff.
	for duration := 20 * time.Millisecond; duration < 10*time.Second; duration *= 5 {
		report = decode[bench.Report](t, c.ok(append(command, "--duration", duration.String())...))
		assert.Zero(t, report.Wrong, report.Examples)
		require.NotNil(t, report.Worlds)
		require.Len(t, report.Worlds.Flood, 2)
		if report.Worlds.Flood[0].Count > 5 {
			break
		}
	}
	assert.Equal(t, 3, report.Worlds.Count)
	assert.Len(t, report.Phases, 2)
	assert.Len(t, report.Worlds.Phases, 2)
	assert.Len(t, report.Worlds.Flooded, 2)
	assert.Greater(t, report.Worlds.Flood[0].Count, 5, "the flood has no rate")
	assert.Positive(t, report.Worlds.OfOne)
	assert.Positive(t, report.Worlds.FloodedP99)
}

// A run on a server of others removes its towns and its stream.
func TestBench_Join(t *testing.T) {
	c := online(t)
	text := c.ok(append(small, "--join")...)
	for _, wants := range []string{
		`(?m)^server nats://\S+ \(joined\), world main$`,
		`8 towns, 4 in flight over 2 connections, 0.02s each phase; `,
		`(?m)^echo +\d+ `, `(?m)^append +\d+ `, `(?m)^handoffs +\d+ `,
		`(?m)^ratio +\d+\.\d+ `, `(?m)^processor +\d+ µs a handoff \(this client alone\)$`,
		`(?m)^wrong +0$`,
	} {
		assert.Regexp(t, wants, text)
	}
	assert.NotContains(t, c.ok("town", "list"), "bench-")
	names := c.world.Streams().StreamNames(t.Context())
	for name := range names.Name() {
		assert.NotContains(t, name, "BENCH")
	}
	require.NoError(t, names.Err())
}

// Other rules lead to other states than the benchmark predicts: it has to say so.
func TestBench_OtherRules(t *testing.T) {
	rules := town.DefaultRules()
	rules.CasualTalk = 0.5
	c := onlineWith(t, engine.Config{Rules: &rules})
	got := c.run(append(small, "--join", "-o", "json")...)
	assert.Equal(t, exitFailed, got.status)
	report := decode[bench.Report](t, got.out)
	assert.GreaterOrEqual(t, report.Wrong, 8, "each town's")
	require.NotEmpty(t, report.Examples)
	assert.Contains(t, report.Examples[0], "expected executed with ")
	assert.False(t, math.IsNaN(report.Executed))
	assert.Contains(t, got.err, "handoffctl: wrong answers: ")
}

func TestBench_Interrupted(t *testing.T) {
	c := online(t)
	ctx, cancel := context.WithTimeout(t.Context(), 200*time.Millisecond)
	defer cancel()
	var out, errs strings.Builder
	assert.NotEqual(t, exitOK, c.exec(ctx, nil, &out, &errs, "bench", "--join", "--duration", "1h"))
}

func TestBench_Text(t *testing.T) {
	t.Parallel()
	var text strings.Builder
	a := &app{flags: &globalFlags{}, out: &text}
	require.NoError(t, a.print(nil, "bench", &bench.Report{
		Rate: 12.5, AppendUnknown: "no permission", Wrong: 1, Examples: []string{"town x: something"},
		Costs: bench.Costs{ServerCPUMicros: 7}, Phases: make([]bench.Phase, 2),
		Worlds: &bench.Worlds{Count: 16, Phases: make([]bench.Phase, 2), OfOne: 0.95,
			Flooded: make([]bench.Phase, 2), Flood: make([]bench.Rate, 2), FloodedP99: 1.5},
	}))
	assert.Contains(t, text.String(), "\n12.5 handoffs a second are offered; ")
	assert.Contains(t, text.String(), "\nof append  unknown: no permission\n")
	assert.Contains(t, text.String(), "  7 µs a handoff (the server alone)\n")
	assert.Contains(t, text.String(), "wrong      1\n           town x: something\n")
	for _, row := range []string{"handoffs", "16 worlds", "flooded", "flood"} {
		assert.Equal(t, 2, strings.Count(text.String(), "\n"+row+"  "), row)
	}
	assert.Contains(t, text.String(), "\nworlds     0.950 executed handoffs in 16 worlds per one in one world")
	assert.Contains(t, text.String(), "\nfairness   1.50 times the calm p99")
}
