package outbox

import (
	"context"
	"fmt"
	"log/slog"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
	"github.com/stretchr/testify/require"

	"worldengine/runevents"
	"worldengine/trace"
	"worldengine/worldengine/internal/core/machine"
	"worldengine/worldengine/internal/core/runlog"
	"worldengine/worldengine/internal/kit/layout"
	"worldengine/worldengine/internal/store/alerts/alertstest"
	"worldengine/worldengine/internal/store/commitlog"
	"worldengine/worldengine/internal/store/records"
	"worldengine/worldengine/internal/store/worldsettings"
	"worldengine/worldengine/internal/testkit/natstest"
	"worldengine/worldengine/wire"
)

func TestMain(m *testing.M) { natstest.Main(m, 16) }

// world is the log of the world main on a real NATS, and the stream of its events.
type world struct {
	t        *testing.T
	replicas int
	nc       *nats.Conn
	js       jetstream.JetStream
	log      jetstream.Stream
	large    map[logPosition]int // the size of the payload of some events
	logged   natstest.Buffer

	mu     sync.Mutex
	raised []runevents.Alert
}

// testTimeout bounds each wait of a test, and answerTimeout each of its requests to JetStream: a busy
// machine exceeds JetStream's own 5 s.
const (
	testTimeout   = 5 * time.Minute
	answerTimeout = time.Minute
)

func newWorld(t *testing.T) *world {
	t.Helper()
	return replicatedOn(t, natstest.Connect(t), 1)
}

// replicatedOn makes a world with so many replicas.
func replicatedOn(t *testing.T, nc *nats.Conn, replicas int) *world {
	t.Helper()
	js, err := jetstream.New(nc, jetstream.WithDefaultTimeout(answerTimeout))
	require.NoError(t, err)
	w := &world{t: t, nc: nc, js: js, replicas: replicas, large: map[logPosition]int{}}
	w.makeLog()
	return w
}

func (w *world) makeLog() {
	w.t.Helper()
	settings := worldsettings.Default()
	var err error
	w.log, err = w.js.CreateStream(w.t.Context(),
		worldsettings.StreamConfig("main", settings, w.replicas))
	require.NoError(w.t, err)
}

// parts is how many events message n of the log has: message n is at sequence n+1.
func parts(n int) int { return n % 4 }

// record returns message n of the log. Those without events are puts and signals, by turns.
func (w *world) record(n int) *nats.Msg {
	w.t.Helper()
	kinds := []machine.Kind{machine.KindConcluded, machine.KindRefused, machine.KindAppended}
	rec := &machine.Record{Kind: kinds[n%3], TownID: "Town 1", Run: &runlog.Run{
		Identity: runevents.Identity{RunID: fmt.Sprint("run-", n%5), PlanID: "plan"},
		FirstSeq: int64(n),
	}}
	if n%7 == 0 {
		rec.Run.Trace = trace.Parse("00-"+strings.Repeat("1", 32)+"-00f067aa0ba902b7-01", "a=b")
	}
	for part := range parts(n) {
		event := runlog.Event{
			EventID: eventID(n, part), EventType: runevents.StepStarted, LogicalAttemptID: 1,
			EmittedAt: "2026-02-16T10:00:00.123Z",
		}
		if size := w.large[logPosition{uint64(n + 1), part}]; size > 0 {
			event.Payload = []byte(`"` + strings.Repeat("x", size) + `"`)
		}
		rec.Run.Events = append(rec.Run.Events, event)
	}
	switch {
	case parts(n) == 0 && n%8 == 0:
		rec.Kind = machine.KindPut
	case parts(n) == 0:
		rec.Kind, rec.Run = machine.KindPause, nil
	}
	msg, err := records.Encode(rec, layout.LogSubject("main", "t"), nil)
	require.NoError(w.t, err)
	msg.Header.Set(layout.AtHeader,
		runevents.Timestamp(time.UnixMilli(1_700_000_000_000+int64(n))))
	return msg
}

func eventID(n, part int) string { return fmt.Sprintf("event-%d-%d", n, part) }

// write appends messages to the log.
func (w *world) write(from, to int) {
	w.t.Helper()
	for n := from; n < to; n++ {
		w.append(w.record(n))
	}
}

func (w *world) append(msg *nats.Msg) {
	w.t.Helper()
	_, err := w.js.PublishMsg(w.t.Context(), msg)
	require.NoError(w.t, err)
}

// damaged is a message of the log that cannot be read.
func damaged() *nats.Msg {
	return &nats.Msg{Subject: layout.RefusedSubject("main", "t"), Data: []byte("{damaged"),
		Header: nats.Header{layout.KindHeader: {string(machine.KindRefused)},
			wire.RunIDHeader: {"run"}}}
}

// config is the configuration of the relays of a test.
func (w *world) config() Config {
	return Config{
		Conn: w.nc, World: "main", Replicas: w.replicas, Retention: time.Hour, Attempts: 3,
		Logger: slog.New(slog.NewTextHandler(&w.logged, nil)),
		Raise: func(a runevents.Alert) {
			w.mu.Lock()
			defer w.mu.Unlock()
			w.raised = append(w.raised, a)
		},
	}
}

// failures counts the tries of relays that failed.
func (w *world) failures() int {
	return strings.Count(w.logged.String(), "run events cannot be published; will try again")
}

func (w *world) alerts(code runevents.AlertCode) (raised []runevents.Alert) {
	w.mu.Lock()
	defer w.mu.Unlock()
	for _, a := range w.raised {
		if a.Code == code {
			raised = append(raised, a)
		}
	}
	return raised
}

// run starts a relay, and returns a function that stops it and waits for its end.
func (w *world) run(change ...func(*Relay)) (*Relay, func()) {
	w.t.Helper()
	s, err := New(w.config())
	require.NoError(w.t, err)
	s.pauses = pauses{min: 2 * time.Millisecond, max: 50 * time.Millisecond,
		idle: 10 * time.Millisecond, check: 50 * time.Millisecond}
	for _, c := range change {
		c(s)
	}
	ctx, cancel := context.WithCancel(w.t.Context())
	var done sync.WaitGroup
	done.Go(func() { s.Run(ctx) })
	stop := func() { cancel(); done.Wait() }
	w.t.Cleanup(stop)
	return s, stop
}

// impatient gives up requests soon that a NATS, which ended, does not answer. It waits long enough
// for messages to miss two heartbeats, which shows that NATS has lost its pull request.
func impatient(s *Relay) {
	s.pauses.idle = defaultPauses.idle
	const requestTimeout = 500 * time.Millisecond
	js, err := jetstream.New(s.config.Conn, jetstream.WithDefaultTimeout(requestTimeout),
		jetstream.WithPublishAsyncTimeout(requestTimeout),
		jetstream.WithPublishAsyncMaxPending(4*(window+runlog.MaxAppend)))
	if err != nil {
		panic(err)
	}
	s.js = js
}

// limit is the size of the largest event that the stream of a limited relay takes.
const limit = 4000

func limited(s *Relay) { s.stream.MaxMsgSize = limit }

func (w *world) eventually(holds func() bool, why string) {
	w.t.Helper()
	require.Eventually(w.t, holds, testTimeout, 5*time.Millisecond, why)
}

// answers waits until NATS, which was away, answers a request well; it may lose some.
func (w *world) answers(request func(ctx context.Context) bool, why string) {
	w.t.Helper()
	w.eventually(func() bool {
		ctx, cancel := context.WithTimeout(w.t.Context(), 250*time.Millisecond)
		defer cancel()
		return request(ctx)
	}, why)
}

func (w *world) wait(s *Relay, seq uint64) {
	w.t.Helper()
	w.eventually(func() bool { return s.Position() >= seq }, fmt.Sprint("published up to ", seq))
}

func (w *world) stream() jetstream.Stream {
	w.t.Helper()
	stream, err := w.js.Stream(w.t.Context(), wire.EventStream("main"))
	require.NoError(w.t, err)
	return stream
}

func (w *world) deleteStream() {
	w.t.Helper()
	require.NoError(w.t, w.js.DeleteStream(w.t.Context(), wire.EventStream("main")))
}

// events returns the messages of the stream of events.
func (w *world) events() []*jetstream.RawStreamMsg {
	w.t.Helper()
	return w.kept(wire.EventStream("main"))
}

// kept returns all messages that a stream keeps, oldest first.
func (w *world) kept(name string) (all []*jetstream.RawStreamMsg) {
	w.t.Helper()
	stream, err := w.js.Stream(w.t.Context(), name)
	require.NoError(w.t, err)
	require.NoError(w.t, commitlog.ScanMessages(w.t.Context(), stream, w.nc.MaxPayload(),
		func(msg *jetstream.RawStreamMsg) error {
			all = append(all, msg)
			return nil
		}))
	return all
}

// requireImage checks that the stream has the events of so many log messages, in order and once,
// except those that were given up, and messages of others.
func (w *world) requireImage(messages int, without ...logPosition) {
	w.t.Helper()
	w.requireEvents(w.image(0, messages, without...))
}

// image returns the ids and places of the events of messages from..to-1.
func (w *world) image(from, to int, without ...logPosition) (want []string) {
	for n := from; n < to; n++ {
		for part := range parts(n) {
			at := logPosition{uint64(n + 1), part}
			left := false
			for _, other := range without {
				left = left || at == other
			}
			if !left {
				want = append(want, fmt.Sprintf("%s at %d.%d", eventID(n, part), n+1, part))
			}
		}
	}
	return want
}

func (w *world) requireEvents(want []string) {
	w.t.Helper()
	var got []string
	for _, msg := range w.events() {
		if at := msg.Header.Get(layout.LogSeqHeader); at != "" {
			got = append(got, fmt.Sprintf("%s at %s.%s", msg.Header.Get(jetstream.MsgIDHeader), at,
				msg.Header.Get(layout.LogPartHeader)))
		}
	}
	require.Equal(w.t, want, got)
}

// letters returns the places of the dead letters.
func (w *world) letters() (all []logPosition) {
	w.t.Helper()
	for _, msg := range alertstest.Letters(w.t, w.js) {
		at, ok := logPositionOf(msg)
		require.True(w.t, ok)
		all = append(all, at)
	}
	return all
}
