package main

import (
	"math"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"worldengine/cmd/handoffctl/internal/bench"
	"worldengine/handoff"
	"worldengine/worldengine"
	"worldengine/worldengine/town"
)

// small are the flags of a benchmark that is over soon.
var small = []string{"bench", "--duration", "20ms", "--towns", "8", "--concurrency", "4",
	"--connections", "2"}

func TestBenchOfAPrivateServer(t *testing.T) {
	c := offline(t)
	report := decode[bench.Report](t, c.ok(append(small, "-o", "json")...))
	assert.Zero(t, report.Wrong, report.Examples)
	assert.Positive(t, report.Echo.Count)
	assert.Positive(t, report.Handoffs.Count)
	assert.InDelta(t, report.Handoffs.PerSecond, report.Executed, 1e-6)
	assert.InDelta(t, report.Executed/report.Echo.PerSecond, report.Ratio, 1e-6)
	assert.LessOrEqual(t, report.Handoffs.P50, report.Handoffs.P99)
	assert.LessOrEqual(t, report.Handoffs.P99, report.Handoffs.Max)
	assert.Positive(t, report.CPUMicros)
	assert.True(t, report.InProcess)
	assert.Equal(t, "interval", report.Sync)
	assert.Len(t, report.Followers, 2)
	for _, lag := range report.Followers {
		assert.GreaterOrEqual(t, lag.CaughtUpMs, 0.0, lag.Stream)
	}
}

// At a rate there are no more handoffs than are due, and a server that projects says how far
// behind.
func TestBenchAtARate(t *testing.T) {
	c := offline(t)
	report := decode[bench.Report](t, c.ok("bench", "--duration", "200ms", "--towns", "8",
		"--concurrency", "4",
		"--rate", "50", "--projector", "-o", "json"))
	assert.Zero(t, report.Wrong, report.Examples)
	assert.GreaterOrEqual(t, report.Handoffs.Count, 1)
	assert.LessOrEqual(t, report.Handoffs.Count, 11)
	require.NotNil(t, report.Projections)
	assert.Positive(t, report.Projections.Samples)
	assert.Equal(t, 50.0, report.Rate)
}

func TestBenchOfEveryStatus(t *testing.T) {
	c := online(t)
	text := c.ok(append(small, "--join", "--mix",
		"executed=4,duplicate=2,stale=2,rejected=1,failed=1")...)
	for _, wants := range []string{
		`8 towns, 4 in flight over 2 connections, 0.02s each phase, mix executed=4,rejected=1,stale=2,duplicate=2,failed=1`,
		`(?m)^server nats://\S+ \(joined\), world main$`,
		`(?m)^ +echo +\d+ `, `(?m)^ +handoffs +\d+ `, `(?m)^ +executed +[1-9]`,
		`(?m)^ +stale +[1-9]`,
		`(?m)^ratio +\d+\.\d+ `, `(?m)^processor +\d+ µs a handoff \(this client alone\)$`,
		`(?m)^wrong +0$`,
		`(?m)^follower +WORLD_main_RUNEVENTS: \d+ log messages behind at the end, caught up in `,
	} {
		assert.Regexp(t, wants, text)
	}
}

// Other rules lead to other states than the benchmark predicts: it has to say so.
func TestBenchExits1ForWrongAnswers(t *testing.T) {
	rules := town.DefaultRules()
	rules.CasualTalk = 0.5
	c := onlineWith(t, worldengine.Config{Rules: &rules})
	got := c.run(append(small, "--join", "-o", "json")...)
	assert.Equal(t, exitFailed, got.status)
	report := decode[bench.Report](t, got.out)
	assert.Equal(t, 8, report.Wrong, "once a town")
	require.NotEmpty(t, report.Examples)
	assert.Contains(t, report.Examples[0], "expected executed with ")
	assert.False(t, math.IsNaN(report.Executed))
	assert.Contains(t, got.err, "handoffctl: wrong answers: 8")
}

func TestBenchOfAWorldThatNobodyServes(t *testing.T) {
	c := online(t)
	got := c.run(append(small, "--join", "--world", "elsewhere")...)
	assert.Equal(t, exitUnavailable, got.status)
	assert.Contains(t, got.err, "NO_RESPONDERS")
	c.env["NATS_URL"] = "nats://127.0.0.1:1"
	assert.Equal(t, exitUnavailable, c.run(append(small, "--join")...).status)
}

func TestBenchMixIsRead(t *testing.T) {
	t.Parallel()
	mix, err := bench.ParseMix("executed=80, duplicate=10,stale=5,rejected=5")
	require.NoError(t, err)
	assert.Equal(t, bench.Mix{handoff.Executed: 80, handoff.Duplicate: 10, handoff.Stale: 5,
		handoff.Rejected: 5}, mix)
}
