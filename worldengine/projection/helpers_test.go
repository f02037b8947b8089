package projection_test

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"strconv"
	"sync"
	"testing"
	"time"

	natsserver "github.com/nats-io/nats-server/v2/server"
	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
	"github.com/nats-io/nuid"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"worldengine/runevents"
	"worldengine/worldengine/natstest"
	"worldengine/worldengine/projection"
)

// bus is an event stream on a real NATS.
type bus struct {
	t  testing.TB
	js jetstream.JetStream
}

const streamName = "EVENTS"

func subject(town, runID string) string { return "events." + town + "." + runID }

func newBus(t testing.TB) *bus { return busOn(t, natstest.Connect(t)) }

func busOn(t testing.TB, nc *nats.Conn) *bus {
	t.Helper()
	js, err := jetstream.New(nc)
	require.NoError(t, err)
	b := &bus{t: t, js: js}
	b.create()
	return b
}

func (b *bus) create() {
	b.t.Helper()
	require.EventuallyWithT(b.t, func(t *assert.CollectT) { // NATS may still be deleting its files
		_, err := b.js.CreateStream(b.t.Context(), jetstream.StreamConfig{
			Name: streamName, Subjects: []string{"events.*.*"}, AllowDirect: true,
		})
		require.NoError(t, err)
	}, 30*time.Second, 10*time.Millisecond)
}

// publish puts records on the bus, in their order.
func (b *bus) publish(records ...runevents.Record) {
	b.t.Helper()
	for i := range records {
		data, err := records[i].AppendJSON(nil)
		require.NoError(b.t, err)
		b.put(records[i].RunID, data)
	}
}

func (b *bus) put(runID string, data []byte) {
	b.t.Helper()
	id := jetstream.WithMsgID(nuid.Next())
	_, err := b.js.Publish(b.t.Context(), "events.town."+runID, data, id)
	// A server that has just come back may not answer the first.
	for try := 0; try < 5 && errors.Is(err, context.DeadlineExceeded); try++ {
		_, err = b.js.Publish(b.t.Context(), "events.town."+runID, data, id)
	}
	require.NoError(b.t, err)
}

// purge discards all before a sequence of the stream.
func (b *bus) purge(before uint64) {
	b.t.Helper()
	stream, err := b.js.Stream(b.t.Context(), streamName)
	require.NoError(b.t, err)
	require.NoError(b.t, stream.Purge(b.t.Context(), jetstream.WithPurgeSequence(before)))
}

// lifecycle is a run of ten events that are persisted now.
func lifecycle(runID string) []runevents.Record {
	run := runevents.Run{FirstSeq: 1, Identity: runevents.Identity{
		RunID: runID, TenantID: "default", ProjectID: "main", EnvironmentID: "local",
		PlanID: "plan", PlanVersion: "proposal.v2",
	}}
	add := func(event runevents.EventType, step string) {
		run.Events = append(run.Events, runevents.Event{
			EventID:   fmt.Sprintf("%s-%d", runID, len(run.Events)+1),
			EventType: event, StepID: step, LogicalAttemptID: 1,
			EmittedAt: runevents.Timestamp(time.Now()), Payload: []byte(`{"reason":"because"}`),
		})
	}
	add(runevents.RunStarted, "")
	for step := range 4 {
		add(runevents.StepStarted, strconv.Itoa(step))
		add(runevents.StepCompleted, strconv.Itoa(step))
	}
	add(runevents.RunCompleted, "")
	return run.Records(time.Now())
}

// invalid is a run of five events whose fourth one is not valid.
func invalid(runID string) []runevents.Record {
	all := lifecycle(runID)
	records := slices.Concat(all[:3], all[4:5], all[9:])
	for i := range records {
		records[i].RunSeq = int64(i + 1)
	}
	return records
}

// watched is a runner that runs, whose alerts are kept.
type watched struct {
	*projection.Runner
	t    testing.TB
	stop func()

	mu     sync.Mutex
	alerts []runevents.Alert
}

func (b *bus) run(change ...func(*projection.Config)) *watched {
	w := &watched{t: b.t}
	config := projection.Config{
		// Each event mentions its run.
		Source:    projection.Source{Stream: streamName, Subject: subject("*", "*")},
		JetStream: b.js, Stream: streamName, Subject: subject,
		Logger: slog.New(slog.DiscardHandler), Alert: func(_ string, a runevents.Alert) {
			w.mu.Lock()
			defer w.mu.Unlock()
			w.alerts = append(w.alerts, a)
		},
	}
	for _, c := range change {
		c(&config)
	}
	w.Runner = projection.New(config)
	ctx, cancel := context.WithCancel(context.Background())
	var done sync.WaitGroup
	done.Go(func() { w.Run(ctx) })
	w.stop = func() { cancel(); done.Wait() }
	b.t.Cleanup(w.stop)
	return w
}

// codes returns what was alerted about: the codes and the events.
func (w *watched) codes() []string {
	w.mu.Lock()
	defer w.mu.Unlock()
	codes := []string{}
	for _, a := range w.alerts {
		codes = append(codes, string(a.Code)+" "+a.EventID)
	}
	return codes
}

// eventually waits until a condition holds.
func (w *watched) eventually(condition func() bool, about string) {
	w.t.Helper()
	require.Eventually(w.t, condition, 30*time.Second, 2*time.Millisecond, about)
}

// reaches waits until a run is projected up to an event, and returns its snapshot.
func (w *watched) reaches(runID string, seq int64) (s runevents.Snapshot) {
	w.t.Helper()
	w.eventually(func() bool {
		s, _ = w.Snapshot(runID)
		return s.LastEventSeq >= seq
	}, runID)
	return s
}

// awaitEnd waits until the end of the stream is reached.
func (w *watched) awaitEnd() {
	w.t.Helper()
	w.eventually(func() bool { return w.Behind() == 0 && w.Lag() == 0 }, "the end of the stream")
}

// mortal is a NATS server that is started again with the same files and port.
type mortal struct {
	t       testing.TB
	options natsserver.Options
	server  *natsserver.Server
}

func newMortal(t testing.TB) *mortal {
	t.Helper()
	m := &mortal{t: t, options: natsserver.Options{
		JetStream: true, StoreDir: t.TempDir(),
	}}
	m.start()
	t.Cleanup(func() { natstest.Stop(m.server) })
	return m
}

func (m *mortal) start() {
	m.t.Helper()
	m.server = natstest.Run(m.t, &m.options) // at the same address after a restart
}

func (m *mortal) restart() {
	m.t.Helper()
	natstest.Stop(m.server)
	m.start()
}
