package main

import (
	"math"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"worldengine/cmd/handoffctl/internal/bench"
	"worldengine/worldengine"
	"worldengine/worldengine/town"
)

// small are the flags of a benchmark that is over soon.
var small = []string{"bench", "--duration", "20ms", "--towns", "8", "--concurrency", "4",
	"--connections", "2"}

func TestBench_PrivateServer(t *testing.T) {
	c := offline(t)
	text := c.ok(append(small, "--phases", "2", "--rate", "500", "-o", "json")...)
	report := decode[bench.Report](t, text)
	assert.Zero(t, report.Wrong, report.Examples)
	assert.Positive(t, report.Echo.Count)
	assert.Positive(t, report.CPUMicros)
	assert.True(t, report.InProcess)
	assert.Equal(t, "interval", report.Sync)
	require.Len(t, report.Phases, 2)
	assert.Positive(t, report.Phases[1].PerSecond)

	// The members that scripts read.
	members := decode[map[string]any](t, text)
	for _, name := range []string{"executedPerSecond", "cpuMicrosPerHandoff", "ratio",
		"ratioToAppend"} {
		assert.Positive(t, members[name], name)
	}
	assert.Positive(t, members["handoffs"].(map[string]any)["p99Ms"])
}

func TestBench_Join(t *testing.T) {
	c := online(t)
	text := c.ok(append(small, "--join")...)
	for _, wants := range []string{
		`(?m)^server nats://\S+ \(joined\), world main$`,
		`8 towns, 4 in flight over 2 connections, 0.02s each phase; `,
		`(?m)^ +echo +\d+ `, `(?m)^ +append +\d+ `, `(?m)^ +handoffs +\d+ `,
		`(?m)^ratio +\d+\.\d+ `, `(?m)^processor +\d+ µs a handoff \(this client alone\)$`,
		`(?m)^wrong +0$`,
	} {
		assert.Regexp(t, wants, text)
	}
}

// Other rules lead to other states than the benchmark predicts: it has to say so.
func TestBench_WrongAnswers(t *testing.T) {
	rules := town.DefaultRules()
	rules.CasualTalk = 0.5
	c := onlineWith(t, worldengine.Config{Rules: &rules})
	got := c.run(append(small, "--join", "-o", "json")...)
	assert.Equal(t, exitFailed, got.status)
	report := decode[bench.Report](t, got.out)
	assert.GreaterOrEqual(t, report.Wrong, 8, "each town's")
	require.NotEmpty(t, report.Examples)
	assert.Contains(t, report.Examples[0], "expected executed with ")
	assert.False(t, math.IsNaN(report.Executed))
	assert.Contains(t, got.err, "handoffctl: wrong answers: ")
}

func TestBench_WorldWithoutServer(t *testing.T) {
	c := online(t)
	c.fails(exitUnavailable, "NO_RESPONDERS", append(small, "--join", "--world", "elsewhere")...)
	c.env["NATS_URL"] = "nats://127.0.0.1:1"
	assert.Equal(t, exitUnavailable, c.run(append(small, "--join")...).status)
}
