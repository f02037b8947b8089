package main

import (
	"context"
	"io"
	"slices"
	"strings"
	"testing"
	"time"

	natsserver "github.com/nats-io/nats-server/v2/server"
	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"worldengine/runevents"
	"worldengine/worldengine/natstest"
	"worldengine/worldengine/server/servertest"
	"worldengine/worldengine/wire"
)

func TestWatch(t *testing.T) {
	c := online(t)
	made := c.ok("new", threatened, "talk", "casual")
	require.Equal(t, exitOK, c.pipe(made, "send", "-").status)
	servertest.Idle(t, c.engine)
	require.Equal(t, exitOK, c.pipe(made, "send", "-").status)

	lines := strings.Split(strings.TrimSpace(c.ok("watch", "--since", "1h", "--count", "17")), "\n")
	require.Regexp(t, `^\d{4}-\d\d-\d\d$`, lines[0])
	// at midnight
	lines = slices.DeleteFunc(lines[1:], func(line string) bool {
		return len(line) == len(lines[0])
	})
	require.Len(t, lines, 17, "ten events of the executed one, seven of the duplicate")
	assert.Regexp(t,
		`^\d\d:\d\d:\d\d\.\d{3}  town-threatened .* 1  RunStarted .* townsfolk talk town-threatened casual$`, lines[0])
	assert.Regexp(t, ` RunCompleted .* executed EXECUTED$`, lines[9])
	assert.Regexp(t, ` StepSkipped +apply +because of DUPLICATE_HANDOFF$`, lines[15])

	ends := strings.Split(strings.TrimSpace(
		c.ok("watch", "--since", "1h", "--type", "RunCompleted", "--town", threatened, "--count",
			"2", "-o", "json")), "\n")
	require.Len(t, ends, 2)
	for _, line := range ends {
		assert.Equal(t, runevents.RunCompleted, decode[runevents.Record](t, line).EventType)
	}
	run := decode[runevents.Record](t, ends[1]).RunID
	assert.Len(t, strings.Split(strings.TrimSpace(
		c.ok("watch", "--since", "1h", "--run", run, "--count", "7", "-o", "json")), "\n"), 7)
	assert.Equal(t, exitUnavailable, c.run("watch", "--world", "nowhere").status)
}

// Alerts are shown as they come, one a line.
func TestWatchAlerts(t *testing.T) {
	c := online(t)
	js := c.streams()
	alert := `{"code":"APPLY_IN_DOUBT","severity":"P1","runId":"0d3c6a9e-4f0c","message":"Who knows?",` +
		`"at":"2026-02-16T10:00:00.000Z"}`
	_, err := js.Publish(t.Context(), wire.AlertSubject("main", "APPLY_IN_DOUBT"), []byte(alert))
	require.NoError(t, err)
	assert.Regexp(t, `^2026-02-1\d \d\d:\d\d:00  P1  APPLY_IN_DOUBT +0d3c6a9e-4f0c  Who knows\?\n$`,
		c.ok("watch", "--alerts", "--since", "1h", "--count", "1"))
	assert.JSONEq(t, alert, c.ok("watch", "--alerts", "--since", "1h", "--count", "1",
		"-o", "json"))
	assert.Equal(t, exitUsage, c.run("watch", "--alerts", "--town", "t").status)
}

// Ctrl-C ends it cleanly after what came.
func TestWatchEnds(t *testing.T) {
	c := online(t)
	require.Equal(t, exitOK, c.pipe(c.ok("new", threatened, "talk", "casual"), "send", "-").status)
	ctx, cancel := context.WithCancel(t.Context())
	out := &signalled{cancel: cancel, after: 11}
	var errs strings.Builder
	status := run(ctx, []string{"--server", c.env["NATS_URL"], "watch", "--since", "1h"},
		strings.NewReader(""), out, &errs, func(string) (string, bool) { return "", false })
	assert.Equal(t, exitOK, status, errs.String())
	assert.Equal(t, 11, strings.Count(out.String(), "\n"), "the date and ten events")
}

// signalled is a terminal at which Ctrl-C is pressed after some lines.
type signalled struct {
	strings.Builder
	cancel context.CancelFunc
	after  int
}

func (s *signalled) Write(line []byte) (int, error) {
	if s.after--; s.after == 0 {
		s.cancel()
	}
	return s.Builder.Write(line)
}

// watched is a watch that runs, on a NATS server of the test's that has a stream of run events.
type watched struct {
	t       *testing.T
	options natsserver.Options
	server  *natsserver.Server
	out     natstest.Buffer
	ended   chan int
	stop    context.CancelFunc
}

func startWatch(t *testing.T, args ...string) *watched {
	t.Parallel()
	w := &watched{t: t, ended: make(chan int, 1), options: natsserver.Options{
		Port: natstest.FreePort(t), JetStream: true, StoreDir: t.TempDir(),
	}}
	w.start()
	t.Cleanup(w.shutdown)
	w.with(func(js jetstream.JetStream) error {
		_, err := js.CreateStream(t.Context(), jetstream.StreamConfig{
			Name: wire.EventStream("main"), Subjects: []string{"runevents.v2.main.*.*"},
		})
		return err
	})
	ctx, cancel := context.WithCancel(context.Background())
	w.stop = cancel
	t.Cleanup(cancel)
	go func() {
		w.ended <- run(ctx, patient(append([]string{"--server", w.server.ClientURL(), "watch"},
			args...)), strings.NewReader(""),
			&w.out, io.Discard, func(string) (string, bool) { return "", false })
	}()
	return w
}

func (w *watched) start() {
	w.t.Helper()
	w.server = natstest.Run(w.t, &w.options) // at the same address after a restart
}

func (w *watched) shutdown() { natstest.Stop(w.server) }

// with does something on a connection of its own.
func (w *watched) with(do func(jetstream.JetStream) error) {
	w.t.Helper()
	nc, err := nats.Connect(w.server.ClientURL(), nats.Timeout(time.Minute))
	require.NoError(w.t, err)
	defer nc.Close()
	js, err := jetstream.New(nc, jetstream.WithDefaultTimeout(time.Minute))
	require.NoError(w.t, err)
	require.NoError(w.t, do(js))
}

// waits waits until the watch waits for events: it knows then that its consumer was made.
func (w *watched) waits() {
	w.t.Helper()
	require.Eventually(w.t, func() (waiting bool) {
		w.with(func(js jetstream.JetStream) error {
			stream, err := js.Stream(w.t.Context(), wire.EventStream("main"))
			if err != nil {
				return err
			}
			consumers := stream.ListConsumers(w.t.Context())
			for info := range consumers.Info() {
				waiting = waiting || info.NumWaiting > 0
			}
			return consumers.Err()
		})
		return waiting
	}, time.Minute, 5*time.Millisecond)
}

func (w *watched) publish(event runevents.EventType, persistedAt time.Time) {
	w.t.Helper()
	record := runevents.Record{PersistedAt: runevents.Timestamp(persistedAt), RunSeq: 1}
	record.RunID, record.EventType = "run", event
	data, err := record.AppendJSON(nil)
	require.NoError(w.t, err)
	w.with(func(js jetstream.JetStream) error {
		_, err := js.Publish(w.t.Context(), "runevents.v2.main.town.run", data)
		return err
	})
}

// shows waits for a text.
func (w *watched) shows(text string) {
	w.t.Helper()
	require.Eventually(w.t, func() bool { return strings.Contains(w.out.String(), text) },
		2*time.Minute, 5*time.Millisecond, text)
}

// From now on means from the start of the watch on, also when the server went away and events came
// before the watch was back.
func TestWatchMissesNothing(t *testing.T) {
	w := startWatch(t)
	w.waits()
	w.shutdown()
	w.start()
	w.publish("FirstAfterRestart", time.Now())
	w.shows("FirstAfterRestart")
	w.publish("Second", time.Now())
	w.shows("Second")
	require.Equal(t, 1, strings.Count(w.out.String(), "FirstAfterRestart"))
	w.stop()
	require.Equal(t, exitOK, <-w.ended)
}

// Ctrl-C ends it at once, also while the server is away.
func TestWatchEndsWithoutAServer(t *testing.T) {
	w := startWatch(t)
	w.waits()
	w.shutdown()
	w.stop()
	select {
	case status := <-w.ended:
		require.Equal(t, exitOK, status)
	case <-time.After(20 * time.Second):
		t.Fatal("it goes on")
	}
}

func TestWatchSaysTheDateWhenItChanges(t *testing.T) {
	w := startWatch(t, "--since", "1h", "--count", "4")
	noon := time.Date(2026, 2, 16, 12, 0, 0, 0, time.Local)
	for i, event := range []runevents.EventType{"A", "B", "C", "D"} {
		w.publish(event, noon.Add(time.Duration(i/2)*24*time.Hour+time.Duration(i)*time.Second))
	}
	require.Equal(t, exitOK, <-w.ended)
	require.Regexp(t, `^2026-02-16
12:00:00.000  town .* A .*
12:00:01.000 .* B .*
2026-02-17
12:00:02.000 .* C .*
12:00:03.000 .* D .*
$`, w.out.String())
}
