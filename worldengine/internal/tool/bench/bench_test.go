package bench

import (
	"testing"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"worldengine/handoff"
	"worldengine/schemas"
	"worldengine/worldengine/internal/serve/server/servertest"
	"worldengine/worldengine/internal/testkit/natstest"
	"worldengine/worldengine/messages"
	"worldengine/worldengine/wire"
)

func TestMain(m *testing.M) { natstest.Main(m, 4) }

func TestWorlds_Compare(t *testing.T) {
	t.Parallel()
	phase := func(executed, p99 float64) Phase {
		return Phase{Rate{P99: p99}, Costs{Executed: executed}}
	}
	r := Worlds{
		Phases:  []Phase{phase(90, 0), phase(10, 0), phase(95, 0)},
		Flooded: []Phase{phase(0, 30), phase(0, 1), phase(0, 31)},
	}
	r.compare([]Phase{phase(100, 10), phase(1000, 1000), phase(99, 9)})
	assert.InDelta(t, 0.9, r.OfOne, 1e-9)
	assert.InDelta(t, 3.0, r.FloodedP99, 1e-9)
}

// loadOn returns a load of two workers on a NATS server.
func loadOn(t *testing.T, url string, options ...nats.Option) *workload {
	dial := func(name string, _ ...nats.Option) (*nats.Conn, error) {
		nc, err := natstest.TryDial(url, append(options, nats.Name(name))...)
		if err == nil {
			t.Cleanup(nc.Close)
		}
		return nc, err
	}
	return &workload{target: Target{World: "main", Timeout: time.Minute, Dial: dial, DialStreams: dial},
		worlds: []string{"main"}, Config: &Config{Towns: 3, Concurrency: 2,
			Connections: 1, Phases: 1, Worlds: 1, Duration: 20 * time.Millisecond, Join: true}}
}

// A server that starts again during a run costs latency and no answer.
func TestWorkload_RestartOfTheServer(t *testing.T) {
	t.Parallel()
	w := servertest.Start(t)
	l := loadOn(t, w.URL())
	require.NoError(t, l.setUp(t.Context()))
	require.Eventually(t, func() bool {
		_, used := l.serverCPU(t.Context())
		return used > 0
	}, time.Minute, 10*time.Millisecond, "the processor time of the server is known")
	require.NoError(t, l.prepare(100))
	phase, err := l.drive(t.Context(), 0, 0, 40, func(worker, round int) error {
		if worker == 0 && round == 20 {
			w.Restart()
		}
		return l.send(t.Context(), l.towns[worker])
	})
	require.NoError(t, err)
	require.Equal(t, 80, phase.Count)
	require.NoError(t, l.checkTowns(t.Context()))
	require.Zero(t, l.wrong, l.examples)
	l.removeTowns(t.Context())
	for _, err := range l.client().Towns(t.Context(), messages.TownList{}) {
		require.NoError(t, err)
		require.Fail(t, "a town is left")
	}
}

func TestWorkload_Drive(t *testing.T) {
	t.Parallel()
	l := workload{Config: &Config{Concurrency: 2}}
	rate, err := l.drive(t.Context(), 0, 0, 3, func(int, int) error { return nil })
	require.NoError(t, err)
	assert.Equal(t, 6, rate.Count, "every worker had its rounds")
	l.Concurrency = 4
	for _, at := range []struct {
		duration time.Duration
		rate     float64
		each     time.Duration
	}{{200 * time.Millisecond, 50, time.Millisecond}, {10 * time.Millisecond, 1000, 20 * time.Millisecond}} {
		rate, err := l.drive(t.Context(), at.duration, at.rate, 1, func(int, int) error {
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
func fakeWorld(t *testing.T, answers ...func(data []byte) *nats.Msg) *workload {
	t.Helper()
	nc := natstest.Connect(t)
	serve := func(verb wire.Verb, answer func(data []byte) *nats.Msg) {
		_, err := nc.Subscribe(wire.Subject("main", verb), func(request *nats.Msg) {
			_ = request.RespondMsg(answer(request.Data))
		})
		require.NoError(t, err)
	}
	for _, verb := range []wire.Verb{wire.TownGet, wire.TownPut, wire.TownRemove, wire.WorldStatus} {
		serve(verb, func([]byte) *nats.Msg { return &nats.Msg{Data: []byte(`{}`)} })
	}
	serve(wire.Handoff, func(data []byte) *nats.Msg { // one subscription calls back one at a time
		answer := answers[0]
		answers = answers[min(1, len(answers)-1):]
		return answer(data)
	})
	require.NoError(t, nc.Flush())
	l := loadOn(t, nc.ConnectedUrl())
	l.Towns, l.Concurrency = 1, 1
	return l
}

func refusal(header nats.Header) func([]byte) *nats.Msg {
	return func([]byte) *nats.Msg { return &nats.Msg{Header: header} }
}

func TestWorkload_WrongAnswers(t *testing.T) {
	t.Parallel()
	l := fakeWorld(t, refusal(nats.Header{wire.ErrorCodeHeader: {"400"}, wire.ErrorHeader: {"no"}}),
		func([]byte) *nats.Msg { return &nats.Msg{Data: []byte(`{}`)} })
	l.Duration = 200 * time.Millisecond // mostly enough for more answers than are shown
	report, err := Run(t.Context(), l.Config, l.target)
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
func TestWorkload_SendsAgain(t *testing.T) {
	t.Parallel()
	driven := newBenchTown("town")
	require.NoError(t, driven.makeStep())
	first := driven.steps[0].result
	l := fakeWorld(t, refusal(nats.Header{wire.ErrorCodeHeader: {"503"}, wire.RetryAfterHeader: {"1"}}),
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
	nc, err := l.target.Dial("test")
	require.NoError(t, err)
	driven.server = l.target.client(nc, "main")
	require.NoError(t, l.send(t.Context(), driven))
	assert.Zero(t, l.wrong, l.examples)
	require.NoError(t, l.send(t.Context(), driven))
	assert.Equal(t, 1, l.wrong)
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
		want      Rate
	}{
		{latencies, 4 * time.Second,
			Rate{Count: 200, PerSecond: 50, P50: 100, P90: 180, P99: 198, Max: 200}},
		{[]time.Duration{time.Millisecond}, time.Second,
			Rate{Count: 1, PerSecond: 1, P50: 1, P90: 1, P99: 1, Max: 1}},
		{nil, time.Second, Rate{}},
	} {
		assert.Equal(t, row.want, rateOf(row.latencies, row.elapsed))
	}
}
