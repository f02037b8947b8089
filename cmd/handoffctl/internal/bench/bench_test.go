package bench

import (
	"bytes"
	"context"
	"errors"
	"log/slog"
	"strings"
	"testing"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"worldengine/handoff"
	"worldengine/schemas"
	"worldengine/worldengine/messages"
	"worldengine/worldengine/natsconn"
	"worldengine/worldengine/server"
	"worldengine/worldengine/wire"
)

// start starts a server and returns the config of a short run on it.
func start(t *testing.T) Config {
	t.Helper()
	config, _ := restartable(t)
	return config
}

// restartable is start, with a function that ends the server and starts it again.
func restartable(t *testing.T) (config Config, restart func()) {
	t.Helper()
	t.Parallel()
	of := server.Config{
		Listen: "127.0.0.1:0", Data: t.TempDir(), Sync: server.SyncInterval,
		Logger: slog.New(slog.DiscardHandler),
	}
	srv, err := server.Start(t.Context(), of)
	require.NoError(t, err)
	end := func() {
		ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
		defer cancel()
		assert.NoError(t, srv.Close(ctx))
	}
	t.Cleanup(func() { end() })
	restart = func() {
		of.Listen = strings.TrimPrefix(srv.URL(), "nats://")
		end()
		srv, err = server.Start(context.Background(), of)
		assert.NoError(t, err)
	}
	return Config{
		Connect: func(name string) (*nats.Conn, error) {
			return nats.Connect(srv.URL(), nats.Name(name), nats.ReconnectWait(10*time.Millisecond))
		},
		Streams: func(name string) (*nats.Conn, error) {
			return natsconn.Options{NKey: srv.OperatorKey()}.Connect(srv.URL(), name)
		},
		Settings: Settings{Towns: 3, Concurrency: 2, Connections: 1, Phases: 1,
			Duration: 20 * time.Millisecond},
		World: "main", Timeout: 10 * time.Second,
	}, restart
}

// fake serves a world that is not the server's: handoffs get the answers of the test, in turn, the
// last one for all that come after.
func fake(t *testing.T, config *Config, answers ...func(data []byte) *nats.Msg) {
	t.Helper()
	config.World, config.Towns, config.Concurrency = "fake", 1, 1
	nc, err := config.Connect("fake")
	require.NoError(t, err)
	t.Cleanup(nc.Close)
	state := []byte(`{}`)
	for verb, answer := range map[wire.Verb]func([]byte) *nats.Msg{
		wire.Handoff: func(data []byte) *nats.Msg { // one subscription calls back one at a time
			next := answers[0]
			answers = answers[min(1, len(answers)-1):]
			return next(data)
		},
		wire.TownGet: func([]byte) *nats.Msg { return &nats.Msg{Data: state} },
		wire.TownPut: func([]byte) *nats.Msg { return &nats.Msg{Data: state} },
	} {
		_, err := nc.Subscribe(wire.Subject(config.World, verb), func(request *nats.Msg) {
			_ = request.RespondMsg(answer(request.Data))
		})
		require.NoError(t, err)
	}
	require.NoError(t, nc.Flush())
}

func refusal(header nats.Header) func([]byte) *nats.Msg {
	return func([]byte) *nats.Msg { return &nats.Msg{Header: header} }
}

func TestRun_DrivesEveryTown(t *testing.T) {
	config := start(t)
	config.Phases = 3
	report, err := Run(t.Context(), config)
	require.NoError(t, err)
	assert.Zero(t, report.Wrong, report.Examples)
	require.Len(t, report.Phases, 3)
	for _, phase := range report.Phases {
		assert.GreaterOrEqual(t, phase.Count, config.Towns)
		assert.InDelta(t, phase.PerSecond, phase.Executed, 1e-6)
		assert.Positive(t, phase.CPUMicros)
	}
	assert.Equal(t, report.Phases[2], Phase{report.Handoffs, report.Costs})
	assert.Positive(t, report.HandoffBytes)
	require.NotNil(t, report.Append, report.AppendUnknown)
	assert.Greater(t, report.Append.Bytes, report.ResultBytes, "a commit has the result, and more")
	assert.InDelta(t, report.Executed/report.Append.PerSecond, report.OfAppend, 1e-6)
	assert.InDelta(t, report.Executed/report.Echo.PerSecond, report.Ratio, 1e-6)
	nc, err := config.Connect("test")
	require.NoError(t, err)
	defer nc.Close()
	require.Eventually(t, func() bool {
		_, used := serverCPU(t.Context(), nc, config.World)
		return used > 0
	}, 30*time.Second, 10*time.Millisecond, "the server says what processor time it has used")
}

// A server that starts again during a run costs latency and no answer. The towns of the run are gone
// in the end.
func TestRun_RestartOfTheServer(t *testing.T) {
	config, restart := restartable(t)
	b := &bench{Config: config}
	require.NoError(t, b.setUp(t.Context()))
	defer func() {
		for _, nc := range b.opened {
			nc.Close()
		}
	}()
	require.NoError(t, b.prepare(100))
	phase, err := b.drive(t.Context(), 0, 0, 40, func(worker, round int) error {
		if worker == 0 && round == 20 {
			restart()
		}
		return b.send(t.Context(), b.clients[0], b.towns[worker])
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

func TestDrive_ShortPhase(t *testing.T) {
	t.Parallel()
	b := bench{Config: Config{Settings: Settings{Concurrency: 2}}}
	rate, err := b.drive(t.Context(), 0, 0, 3, func(worker, round int) error { return nil })
	require.NoError(t, err)
	assert.Equal(t, 6, rate.Count, "every worker had its rounds")
}

func TestDrive_AtARate(t *testing.T) {
	t.Parallel()
	b := bench{Config: Config{Settings: Settings{Concurrency: 4}}}
	rate, err := b.drive(t.Context(), 200*time.Millisecond, 50, 1, func(_, round int) error {
		time.Sleep(time.Millisecond)
		return nil
	})
	require.NoError(t, err)
	assert.Equal(t, 10, rate.Count)
	slow, err := b.drive(t.Context(), 10*time.Millisecond, 1000, 1, func(_, round int) error {
		time.Sleep(20 * time.Millisecond)
		return nil
	})
	require.NoError(t, err)
	assert.Equal(t, 10, slow.Count, "those that no worker was free for are sent late")
	assert.Greater(t, slow.Max, 40.0, "latencies count from when they are due")
}

func TestRun_RemovesTheStreamOfAppends(t *testing.T) {
	config := start(t)
	report, err := Run(t.Context(), config)
	require.NoError(t, err)
	require.NotNil(t, report.Append, "there was such a stream")
	nc, err := config.Streams("test")
	require.NoError(t, err)
	defer nc.Close()
	js, err := jetstream.New(nc)
	require.NoError(t, err)
	list := js.StreamNames(t.Context())
	var names []string
	for name := range list.Name() {
		names = append(names, name)
		assert.NotContains(t, name, "BENCH")
	}
	require.NoError(t, list.Err())
	require.Contains(t, names, wire.LogStream(wire.DefaultWorld))
	config.Streams = nil
	report, err = Run(t.Context(), config)
	require.NoError(t, err)
	assert.Nil(t, report.Append)
	assert.NotEmpty(t, report.AppendUnknown)
}

func TestRun_EndsWithItsContext(t *testing.T) {
	config := start(t)
	config.Duration = time.Hour
	ctx, cancel := context.WithTimeout(t.Context(), 200*time.Millisecond)
	defer cancel()
	_, err := Run(ctx, config)
	assert.ErrorIs(t, err, context.DeadlineExceeded)
}

func TestRun_WrongAnswers(t *testing.T) {
	config := start(t)
	config.Duration = time.Second // for more answers than are shown, on a busy machine too
	fake(t, &config,
		refusal(nats.Header{wire.ErrorCodeHeader: {"400"}, wire.ErrorHeader: {"no"}}),
		func([]byte) *nats.Msg { return &nats.Msg{Data: []byte(`{}`)} })
	report, err := Run(t.Context(), config)
	require.NoError(t, err)
	assert.Greater(t, report.Wrong, maxExamples)
	assert.Zero(t, report.Executed)
	require.Len(t, report.Examples, maxExamples)
	assert.Contains(t, report.Examples[0], "expected executed, got the error UNKNOWN (400): no")
	assert.Regexp(t, `expected executed with "resultId":"result_\w+", got {}`, report.Examples[1])
	assert.NotEmpty(t, report.AppendUnknown, "that world has no streams")
}

// A refusal that asks for another attempt gets one. It may hide an acceptance, so a duplicate of
// the predicted result is right then, and only then.
func TestSend_Again(t *testing.T) {
	config := start(t)
	driven := newDriven("town")
	require.NoError(t, driven.makeStep())
	first := driven.steps[0].result
	duplicate := func(data []byte) *nats.Msg {
		h, err := handoff.Parse(data, schemas.Limits{})
		assert.NoError(t, err)
		outcome := handoff.Outcome{
			Status: handoff.Duplicate, ReasonCode: handoff.ReasonDuplicate,
			Evaluation: handoff.Evaluation{
				DuplicateCheck: handoff.DuplicateReport{
					Evaluated: true, Duplicate: true, DuplicateOf: &first,
				},
				Preconditions: handoff.PreconditionReport{Failures: []handoff.Failure{}},
			},
		}
		result, err := handoff.NewResult(h, outcome).MarshalWire()
		assert.NoError(t, err)
		return &nats.Msg{Data: result}
	}
	fake(t, &config,
		refusal(nats.Header{wire.ErrorCodeHeader: {"503"}, wire.RetryAfterHeader: {"1"}}),
		duplicate)
	nc, err := config.Connect("test")
	require.NoError(t, err)
	defer nc.Close()
	b := &bench{Config: config}
	require.NoError(t, b.send(t.Context(), nc, driven))
	assert.Zero(t, b.wrong, b.examples)
	require.NoError(t, b.send(t.Context(), nc, driven))
	assert.Equal(t, 1, b.wrong)
}

func TestRateOf(t *testing.T) {
	t.Parallel()
	var latencies []time.Duration
	for i := range 200 {
		latencies = append(latencies, time.Duration(200-i)*time.Millisecond)
	}
	got := rateOf(latencies, 4*time.Second)
	assert.Equal(t, Rate{Count: 200, PerSecond: 50, P50: 100, P90: 180, P99: 198, Max: 200}, got)
	one := rateOf([]time.Duration{time.Millisecond}, time.Second)
	assert.Equal(t, Rate{Count: 1, PerSecond: 1, P50: 1, P90: 1, P99: 1, Max: 1}, one)
	assert.Equal(t, Rate{}, rateOf(nil, time.Second))
}

func TestReport_WriteText(t *testing.T) {
	t.Parallel()
	r := &Report{
		Rate: 12.5, AppendUnknown: "no permission", Wrong: 1, Examples: []string{"town x: something"},
		Costs: Costs{ServerCPUMicros: 7}, Phases: make([]Phase, 2),
	}
	var text bytes.Buffer
	require.NoError(t, r.WriteText(&text))
	assert.Contains(t, text.String(), "\n12.5 handoffs a second are offered; ")
	assert.Contains(t, text.String(), "\nof append    unknown: no permission\n")
	assert.Contains(t, text.String(), " 7 µs a handoff (the server alone)\n")
	assert.Contains(t, text.String(), "wrong        1\n             town x: something\n")
	assert.Equal(t, 2, bytes.Count(text.Bytes(), []byte("  handoffs  ")))
	assert.ErrorIs(t, r.WriteText(broken{}), errBroken)
}

var errBroken = errors.New("broken")

type broken struct{}

func (broken) Write([]byte) (int, error) { return 0, errBroken }

func TestConfig_Validate(t *testing.T) {
	t.Parallel()
	good := Config{Settings: Settings{Towns: 2, Concurrency: 2, Connections: 1, Phases: 1,
		Duration: time.Second}, Timeout: time.Second}
	assert.NoError(t, good.Validate())
	for _, test := range []struct {
		change func(*Config)
		wants  string
	}{
		{func(c *Config) { c.Towns = 0 }, "must be at least 1"},
		{func(c *Config) { c.Phases = 0 }, "must be at least 1"},
		{func(c *Config) { c.Concurrency = 0 }, "must be at least 1"},
		{func(c *Config) { c.Connections = 0 }, "must be at least 1"},
		{func(c *Config) { c.Concurrency = 3 }, "a concurrency of 3 needs as many"},
		{func(c *Config) { c.Duration = time.Millisecond }, "the duration must be"},
		{func(c *Config) { c.Rate = -1 }, "the rate must be 0 or make"},
		{func(c *Config) { c.Rate = 0.5 }, "make a handoff within"},
	} {
		bad := good
		test.change(&bad)
		assert.ErrorContains(t, bad.Validate(), test.wants)
	}
}
