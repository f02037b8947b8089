package handoffctl

import (
	"context"
	"log/slog"
	"math"
	"strings"
	"testing"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"worldengine/handoff"
	"worldengine/schemas"
	"worldengine/worldengine/internal/core/town"
	"worldengine/worldengine/internal/engine"
	"worldengine/worldengine/internal/serve/server"
	"worldengine/worldengine/messages"
	"worldengine/worldengine/wire"
)

// small are the flags of a benchmark that is over soon.
var small = []string{"bench", "--duration", "20ms", "--towns", "8", "--concurrency", "4",
	"--connections", "2"}

func TestBench_PrivateServer(t *testing.T) {
	c := offline(t)
	text := c.ok(append(small, "--phases", "3", "--rate", "500", "-o", "json")...)
	report := decode[benchReport](t, text)
	assert.Zero(t, report.Wrong, report.Examples)
	assert.Positive(t, report.HandoffBytes)
	assert.True(t, report.InProcess)
	assert.Equal(t, "interval", report.Sync)
	require.Len(t, report.Phases, 3)
	for _, phase := range report.Phases {
		assert.Positive(t, phase.CPUMicros)
		assert.InDelta(t, phase.PerSecond, phase.Executed, 1e-6)
	}
	assert.Equal(t, report.Phases[2], benchPhase{report.Handoffs, report.benchCosts})
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
	command := append(small, "--phases", "2", "--rate", "500", "--worlds", "3", "--flood", "5")
	report := decode[benchReport](t, c.ok(append(command, "-o", "json")...))
	assert.Zero(t, report.Wrong, report.Examples)
	require.NotNil(t, report.Worlds)
	assert.Equal(t, 3, report.Worlds.Count)
	assert.Len(t, report.Phases, 2)
	assert.Len(t, report.Worlds.Phases, 2)
	assert.Len(t, report.Worlds.Flooded, 2)
	require.Len(t, report.Worlds.Flood, 2)
	assert.Greater(t, report.Worlds.Flood[0].Count, 5, "the flood has no rate")
	assert.Positive(t, report.Worlds.OfOne)
	assert.Positive(t, report.Worlds.FloodedP99)
}

func TestBench_WorldsCompared(t *testing.T) {
	t.Parallel()
	phase := func(executed, p99 float64) benchPhase {
		return benchPhase{benchRate{P99: p99}, benchCosts{Executed: executed}}
	}
	r := benchWorlds{
		Phases:  []benchPhase{phase(90, 0), phase(10, 0), phase(95, 0)},
		Flooded: []benchPhase{phase(0, 30), phase(0, 1), phase(0, 31)},
	}
	r.compare([]benchPhase{phase(100, 10), phase(1000, 1000), phase(99, 9)})
	assert.InDelta(t, 0.9, r.OfOne, 1e-9)
	assert.InDelta(t, 3.0, r.FloodedP99, 1e-9)
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
	names := c.streams().StreamNames(t.Context())
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
	report := decode[benchReport](t, got.out)
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

// benchOn returns a benchmark of two workers on a NATS server.
func benchOn(t *testing.T, url string) *bench {
	a := &app{flags: &globalFlags{Server: url, World: "main", Timeout: time.Minute}}
	t.Cleanup(func() {
		for _, nc := range a.opened {
			nc.Close()
		}
	})
	return &bench{app: a, worlds: []string{"main"}, benchCommand: &benchCommand{Towns: 3, Concurrency: 2,
		Connections: 1, Phases: 1, Worlds: 1, Duration: 20 * time.Millisecond, Join: true}}
}

// A server that starts again during a run costs latency and no answer.
func TestBench_RestartOfTheServer(t *testing.T) {
	t.Parallel()
	config := server.Config{Listen: "127.0.0.1:0", Data: t.TempDir(), Sync: server.SyncInterval,
		Logger: slog.New(slog.DiscardHandler)}
	srv, err := server.Start(t.Context(), config)
	require.NoError(t, err)
	end := func() {
		ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
		defer cancel()
		assert.NoError(t, srv.Close(ctx))
	}
	defer func() { end() }()
	b := benchOn(t, srv.URL())
	require.NoError(t, b.setUp(t.Context()))
	require.Eventually(t, func() bool {
		_, used := b.serverCPU(t.Context())
		return used > 0
	}, time.Minute, 10*time.Millisecond, "the processor time of the server is known")
	require.NoError(t, b.prepare(100))
	phase, err := b.drive(t.Context(), 0, 0, 40, func(worker, round int) error {
		if worker == 0 && round == 20 {
			config.Listen = strings.TrimPrefix(srv.URL(), "nats://")
			end()
			srv, err = server.Start(context.Background(), config)
			assert.NoError(t, err)
		}
		return b.send(t.Context(), b.towns[worker])
	})
	require.NoError(t, err)
	require.Equal(t, 80, phase.Count)
	require.NoError(t, b.checkTowns(t.Context()))
	require.Zero(t, b.wrong, b.examples)
	b.removeTowns(t.Context())
	for _, err := range b.client().Towns(t.Context(), messages.TownList{}) {
		require.NoError(t, err)
		require.Fail(t, "a town is left")
	}
}

func TestBench_Drive(t *testing.T) {
	t.Parallel()
	b := bench{benchCommand: &benchCommand{Concurrency: 2}}
	rate, err := b.drive(t.Context(), 0, 0, 3, func(int, int) error { return nil })
	require.NoError(t, err)
	assert.Equal(t, 6, rate.Count, "every worker had its rounds")
	b.Concurrency = 4
	for _, at := range []struct {
		duration time.Duration
		rate     float64
		each     time.Duration
	}{{200 * time.Millisecond, 50, time.Millisecond}, {10 * time.Millisecond, 1000, 20 * time.Millisecond}} {
		rate, err := b.drive(t.Context(), at.duration, at.rate, 1, func(int, int) error {
			time.Sleep(at.each)
			return nil
		})
		require.NoError(t, err)
		assert.Equal(t, 10, rate.Count, "those that no worker was free for are sent late")
		if at.rate == 1000 {
			assert.Greater(t, rate.Max, 40.0, "latencies count from when they are due")
		}
	}
}

// fakeWorld serves a world that has one town: handoffs get the answers of the test, in turn, the last
// one for all that come after.
func fakeWorld(t *testing.T, answers ...func(data []byte) *nats.Msg) *bench {
	t.Helper()
	c := faked(t, map[string]string{"town.get": "{}", "town.put": "{}", "town.remove": "{}",
		"world.status": "{}"})
	nc := c.connect()
	_, err := nc.Subscribe(wire.Subject("main", wire.Handoff), func(request *nats.Msg) {
		next := answers[0] // one subscription calls back one at a time
		answers = answers[min(1, len(answers)-1):]
		_ = request.RespondMsg(next(request.Data))
	})
	require.NoError(t, err)
	require.NoError(t, nc.Flush())
	b := benchOn(t, c.flags["server"])
	b.Towns, b.Concurrency = 1, 1
	b.app.flags.Connection.User, b.app.flags.Connection.Password = "agent", "secret"
	return b
}

func refusal(header nats.Header) func([]byte) *nats.Msg {
	return func([]byte) *nats.Msg { return &nats.Msg{Header: header} }
}

func TestBench_WrongAnswers(t *testing.T) {
	b := fakeWorld(t, refusal(nats.Header{wire.ErrorCodeHeader: {"400"}, wire.ErrorHeader: {"no"}}),
		func([]byte) *nats.Msg { return &nats.Msg{Data: []byte(`{}`)} })
	b.Duration = 200 * time.Millisecond // mostly enough for more answers than are shown
	report, err := b.run(t.Context())
	require.NoError(t, err)
	assert.Zero(t, report.Executed)
	require.GreaterOrEqual(t, report.Wrong, 2)
	require.Len(t, report.Examples, min(report.Wrong, maxExamples))
	assert.Regexp(t, `expected executed with "resultId":"result_\w+", got no$`, report.Examples[0])
	assert.Regexp(t, `expected executed with "resultId":"result_\w+", got {}`, report.Examples[1])
	assert.NotEmpty(t, report.AppendUnknown, "that world has no streams")
}

// A refusal that asks for another attempt gets one. It may hide an acceptance, so a duplicate of
// the predicted result is right then, and only then.
func TestBench_SendsAgain(t *testing.T) {
	driven := newDriven("town")
	require.NoError(t, driven.makeStep())
	first := driven.steps[0].result
	b := fakeWorld(t, refusal(nats.Header{wire.ErrorCodeHeader: {"503"}, wire.RetryAfterHeader: {"1"}}),
		func(data []byte) *nats.Msg {
			h, err := handoff.Parse(data, schemas.Limits{})
			assert.NoError(t, err)
			result, err := handoff.NewResult(h, handoff.Outcome{
				Status: handoff.Duplicate, ReasonCode: handoff.ReasonDuplicate,
				Evaluation: handoff.Evaluation{
					DuplicateCheck: handoff.DuplicateReport{Evaluated: true, Duplicate: true,
						DuplicateOf: &first},
					Preconditions: handoff.PreconditionReport{Failures: []handoff.Failure{}},
				},
			}).MarshalWire()
			assert.NoError(t, err)
			return &nats.Msg{Data: result}
		})
	nc, err := b.app.dial("test")
	require.NoError(t, err)
	driven.server = b.app.client(nc)
	require.NoError(t, b.send(t.Context(), driven))
	assert.Zero(t, b.wrong, b.examples)
	require.NoError(t, b.send(t.Context(), driven))
	assert.Equal(t, 1, b.wrong)
}

func TestRateOf(t *testing.T) {
	t.Parallel()
	var latencies []time.Duration
	for i := range 200 {
		latencies = append(latencies, time.Duration(200-i)*time.Millisecond)
	}
	for _, row := range []struct {
		latencies []time.Duration
		elapsed   time.Duration
		want      benchRate
	}{
		{latencies, 4 * time.Second,
			benchRate{Count: 200, PerSecond: 50, P50: 100, P90: 180, P99: 198, Max: 200}},
		{[]time.Duration{time.Millisecond}, time.Second,
			benchRate{Count: 1, PerSecond: 1, P50: 1, P90: 1, P99: 1, Max: 1}},
		{nil, time.Second, benchRate{}},
	} {
		assert.Equal(t, row.want, rateOf(row.latencies, row.elapsed))
	}
}

func TestBench_Text(t *testing.T) {
	t.Parallel()
	var text strings.Builder
	a := &app{flags: &globalFlags{}, out: &text}
	require.NoError(t, a.print(nil, func(t table) {
		t.bench(&benchReport{
			Rate: 12.5, AppendUnknown: "no permission", Wrong: 1, Examples: []string{"town x: something"},
			benchCosts: benchCosts{ServerCPUMicros: 7}, Phases: make([]benchPhase, 2),
			Worlds: &benchWorlds{Count: 16, Phases: make([]benchPhase, 2), OfOne: 0.95,
				Flooded: make([]benchPhase, 2), Flood: make([]benchRate, 2), FloodedP99: 1.5},
		})
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
