package bench

import (
	"bytes"
	"context"
	"log/slog"
	"testing"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"worldengine/handoff"
	"worldengine/worldengine/natsconn"
	"worldengine/worldengine/server"
	"worldengine/worldengine/wire"
)

// start starts a server and returns the config of a short run on it.
func start(t *testing.T) Config {
	t.Helper()
	t.Parallel()
	srv, err := server.Start(t.Context(), server.Config{
		Listen: "127.0.0.1:0", Data: t.TempDir(), Sync: server.SyncInterval,
		Logger: slog.New(slog.DiscardHandler),
	})
	require.NoError(t, err)
	t.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
		defer cancel()
		assert.NoError(t, srv.Close(ctx))
	})
	return Config{
		Connect: func(name string) (*nats.Conn, error) {
			return nats.Connect(srv.URL(), nats.Name(name))
		},
		Streams: func(name string) (*nats.Conn, error) {
			return natsconn.Options{NKey: srv.OperatorKey()}.Connect(srv.URL(), name)
		},
		World: "main", Towns: 3, Concurrency: 2, Connections: 1, Duration: 20 * time.Millisecond,
		Mix: Mix{handoff.Executed: 1}, Timeout: 10 * time.Second,
	}
}

// pretend serves a world that is not the server's, with answers of the test's choosing.
func pretend(
	t *testing.T, config *Config, answer func(verb wire.Verb, request *nats.Msg) *nats.Msg,
) {
	t.Helper()
	config.World = "pretended"
	nc, err := config.Connect("pretender")
	require.NoError(t, err)
	t.Cleanup(nc.Close)
	for _, verb := range []wire.Verb{wire.Handoff, wire.TownGet, wire.TownPut} {
		_, err := nc.Subscribe(wire.Subject(config.World, verb), func(request *nats.Msg) {
			_ = request.RespondMsg(answer(verb, request))
		})
		require.NoError(t, err)
	}
	require.NoError(t, nc.Flush())
}

func TestRunDrivesEveryTown(t *testing.T) {
	config := start(t)
	report, err := Run(t.Context(), config)
	require.NoError(t, err)
	assert.Zero(t, report.Wrong, report.Examples)
	assert.GreaterOrEqual(t, report.Handoffs.Count, 3)
	assert.Len(t, report.Followers, 2)
	assert.Positive(t, report.HandoffBytes)
	assert.Positive(t, report.ResultBytes)
	require.NotNil(t, report.Append, report.AppendUnknown)
	assert.Positive(t, report.Append.Count)
	assert.Greater(t, report.Append.Bytes, report.ResultBytes, "a commit has the result, and more")
	assert.InDelta(t, report.Executed/report.Append.PerSecond, report.OfAppend, 1e-6)
	nc, err := config.Connect("test")
	require.NoError(t, err)
	defer nc.Close()
	require.Eventually(t, func() bool {
		_, used, ok := serverCPU(t.Context(), nc, config.World)
		return ok && used > 0
	}, 30*time.Second, 10*time.Millisecond, "the server says what processor time it has used")
}

// However slow the machine is, no phase is over before everyone had a turn.
func TestNoPhaseIsEmpty(t *testing.T) {
	config := start(t)
	config.Duration = 0
	b := &bench{config: config}
	defer b.close()
	require.NoError(t, b.setUp(t.Context()))
	_, err := b.warmUp(t.Context())
	require.NoError(t, err)
	require.NoError(t, prepare(t.Context(), b.targets, 1))
	report := newReport(&config)
	require.NoError(t, b.measureEcho(t.Context(), report))
	require.NoError(t, b.measureHandoffs(t.Context(), report))
	report.Append, err = b.measureAppend(t.Context())
	require.NoError(t, err)
	assert.Equal(t, config.Concurrency, report.Echo.Count)
	assert.Equal(t, config.Towns, report.Handoffs.Count)
	assert.Equal(t, config.Concurrency, report.Append.Count)
}

// Each of several phases is reported, on the same towns.
func TestSeveralPhases(t *testing.T) {
	config := start(t)
	config.Phases = 3
	report, err := Run(t.Context(), config)
	require.NoError(t, err)
	assert.Zero(t, report.Wrong, report.Examples)
	require.Len(t, report.Phases, 3)
	for _, phase := range report.Phases {
		assert.Positive(t, phase.Count)
	}
	assert.Equal(t, report.Handoffs, report.Phases[2].Rate)
	var text bytes.Buffer
	require.NoError(t, report.WriteText(&text))
	assert.Contains(t, text.String(), "\nphase 3      ")
}

// The stream of the bare appends is gone after the run; a client that may not use streams says why
// it has none.
func TestTheStreamOfAppendsIsRemoved(t *testing.T) {
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

func TestRunEndsWhenItsContextDoes(t *testing.T) {
	config := start(t)
	config.Duration = time.Hour
	ctx, cancel := context.WithTimeout(t.Context(), 200*time.Millisecond)
	defer cancel()
	_, err := Run(ctx, config)
	assert.ErrorIs(t, err, context.DeadlineExceeded)
}

func TestRunReportsAnswersThatAreNoResults(t *testing.T) {
	config := start(t)
	pretend(t, &config, func(verb wire.Verb, request *nats.Msg) *nats.Msg {
		return &nats.Msg{Data: []byte(`{}`), Header: nats.Header{wire.RunIDHeader: {"r"}}}
	})
	report, err := Run(t.Context(), config)
	require.NoError(t, err)
	assert.Equal(t, 3, report.Wrong)
	assert.Contains(t, report.Examples[0], "expected executed, got what is not a valid result")
	assert.Zero(t, report.Executed)
	assert.NotEmpty(t, report.FollowersUnknown, "that world has no streams")
}

func TestRunAsksAgainAndReportsRefusals(t *testing.T) {
	config := start(t)
	asked := 0
	pretend(t, &config, func(verb wire.Verb, request *nats.Msg) *nats.Msg {
		if verb != wire.Handoff {
			return &nats.Msg{Data: []byte(`{}`)}
		}
		header := nats.Header{wire.ErrorCodeHeader: {"429"}, wire.RetryAfterHeader: {"1"}}
		if asked++; asked > 2 { // one subscription calls back one at a time
			header = nats.Header{wire.ErrorCodeHeader: {"400"}, wire.ErrorHeader: {"no"}}
		}
		return &nats.Msg{Header: header}
	})
	config.Towns, config.Concurrency = 1, 1
	report, err := Run(t.Context(), config)
	require.NoError(t, err)
	assert.Equal(t, 1, report.Wrong)
	assert.Equal(t, []string{report.Examples[0]}, report.Examples)
	assert.Contains(t, report.Examples[0], "expected executed, got the error UNKNOWN (400): no")
}

func TestAnAnswerToARepeatedHandoffMayBeADuplicate(t *testing.T) {
	t.Parallel()
	c := newChain("town", Mix{handoff.Executed: 1}, 0)
	executed, err := c.next()
	require.NoError(t, err)
	encoded, err := handoff.NewResult(c.accepted, c.duplicate()).MarshalWire()
	require.NoError(t, err)
	reply := &nats.Msg{Data: encoded}
	assert.Empty(t, disagreement(&executed, reply, true))
	assert.Contains(t, disagreement(&executed, reply, false), "got duplicate DUPLICATE_HANDOFF")
}

func TestAnAnswerMayBeWrittenOtherwise(t *testing.T) {
	t.Parallel()
	c := newChain("town", Mix{handoff.Executed: 1}, 0)
	first, err := c.next()
	require.NoError(t, err)
	duplicate, err := handoff.NewResult(c.accepted, c.duplicate()).MarshalWire()
	require.NoError(t, err)
	spaced := append([]byte(" \n"), duplicate...)
	made, _ := finish(c.accepted, c.sent, c.duplicate())
	assert.Empty(t, disagreement(&made, &nats.Msg{Data: spaced}, false))
	assert.NotEmpty(t, disagreement(&first, &nats.Msg{Data: spaced}, false))
}
