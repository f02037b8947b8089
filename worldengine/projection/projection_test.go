package projection_test

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"worldengine/runevents"
	"worldengine/worldengine/projection"
)

// lookBack makes a runner begin so many events before the end.
func lookBack(events uint64) func(*projection.Config) {
	return func(c *projection.Config) { c.Lookback = events }
}

func TestRunsAreProjectedAsTheyCome(t *testing.T) {
	t.Parallel()
	b := newBus(t)
	w := b.run()
	for i := range 3 {
		records := lifecycle(fmt.Sprintf("run-%d", i))
		b.publish(records...)
		want, _, err := runevents.Project(records[0].RunID, records)
		require.NoError(t, err)
		require.Equal(t, want, w.reaches(records[0].RunID, 10))
	}
	w.awaitEnd()
	require.Empty(t, w.codes())
	_, ok := w.Snapshot("run-3")
	require.False(t, ok)
}

// An invalid transition is alerted about once, however often it is read.
func TestAnInvalidTransitionIsAnAlert(t *testing.T) {
	t.Parallel()
	b := newBus(t)
	w := b.run(func(c *projection.Config) { c.Now = func() time.Time { return time.Unix(1, 0) } })
	records := invalid("run")
	b.publish(records...)
	b.publish(records...)
	b.publish(lifecycle("another")...)
	w.reaches("another", 10)
	require.Equal(t, []string{
		"INVALID_TRANSITION run-5", "PROJECTOR_CAUSAL_VIOLATION run-5",
	}, w.codes())
	s := w.reaches("run", 5)
	require.Equal(t, runevents.Inconsistent, s.Metadata.Consistency)
	a := w.alerts[0]
	require.Equal(t, []any{
		"run", int64(4), records[3].PersistedAt, "PENDING", "SUCCESS", "1970-01-01T00:00:01.000Z",
	},
		[]any{a.RunID, a.RunSeq, a.PersistedAt, a.PriorState, a.AttemptedState, a.At})
}

// What came before the runner is looked at as far back as it is told, without an alert about the
// runs that begin before that.
func TestItBeginsBeforeTheEnd(t *testing.T) {
	t.Parallel()
	b := newBus(t)
	b.publish(invalid("too-early")...)
	b.publish(lifecycle("long-ago")...)
	old := invalid("missed")
	for i := range old {
		old[i].PersistedAt = "2020-01-01T00:00:00.000Z"
	}
	b.publish(old...)
	w := b.run(lookBack(uint64(len(old) + 3)))
	w.reaches("missed", 5)
	s := w.reaches("long-ago", 10)
	require.Equal(t, runevents.RunSucceeded, s.Status, "read from its beginning")
	w.awaitEnd()
	require.Equal(t, []string{
		"INVALID_TRANSITION missed-5", "PROJECTOR_CAUSAL_VIOLATION missed-5",
	}, w.codes(), "and what is old does not lag")
	_, ok := w.Snapshot("too-early")
	require.False(t, ok)
}

// Of the runs that nobody mentions a sample is looked at. NATS is asked for it by its town: it
// walks through all towns for one whose town is not given.
func TestASampleOfRunsIsProjected(t *testing.T) {
	t.Parallel()
	b := newBus(t)
	w := b.run(func(c *projection.Config) {
		c.Source.Subject = "events.others.*"
		c.Subject = func(town, runID string) string {
			assert.Equal(t, "town", town)
			return subject(town, runID)
		}
	})
	for i := range 1000 {
		runID := fmt.Sprintf("run-%d", i)
		if i%256 == 255 {
			b.publish(invalid(runID)...)
		}
		w.Sample("town", runID, uint64(i))
		if i%256 == 255 {
			w.reaches(runID, 5)
		}
	}
	require.Len(t, w.codes(), 3*2)
	require.Zero(t, w.Behind())
}

// The source need not mention every event: what is between two mentions of a run is no gap. What a
// mention is about may come to the event stream later.
func TestASourceThatMentionsSomeEvents(t *testing.T) {
	t.Parallel()
	b := newBus(t)
	_, err := b.js.CreateStream(t.Context(), jetstream.StreamConfig{
		Name: "LOG", Subjects: []string{"log.*.*"},
	})
	require.NoError(t, err)
	arrived := make(chan struct{})
	w := b.run(func(c *projection.Config) {
		c.Source = projection.Source{Stream: "LOG", Subject: "log.run.*",
			Wait: func(ctx context.Context, _ uint64) error {
				select {
				case <-arrived:
					return nil
				case <-ctx.Done():
					return ctx.Err()
				}
			}}
	})
	records, done := lifecycle("run"), int64(0)
	for _, part := range [][]runevents.Record{records[:3], records[3:8], records[8:]} {
		for _, subject := range []string{"log.town.t", "log.run.run", "log.town.t"} {
			_, err := b.js.Publish(t.Context(), subject, nil)
			require.NoError(t, err)
		}
		w.eventually(func() bool { return w.Behind() == 1 }, "the run is mentioned")
		s, _ := w.Snapshot("run")
		require.Equal(t, done, s.LastEventSeq)
		b.publish(part...)
		arrived <- struct{}{}
		done = part[len(part)-1].RunSeq
		w.reaches("run", done)
		w.awaitEnd()
	}
	require.Empty(t, w.codes())
}

// A message of the source that mentions nothing is passed over, and not waited for.
func TestWhatMentionsNothing(t *testing.T) {
	t.Parallel()
	b := newBus(t)
	_, err := b.js.CreateStream(t.Context(), jetstream.StreamConfig{
		Name: "LOG", Subjects: []string{"log.*"},
	})
	require.NoError(t, err)
	var waited atomic.Int64
	w := b.run(func(c *projection.Config) {
		c.Source = projection.Source{
			Stream: "LOG", Subject: "log.*",
			Mentions: func(h nats.Header) bool { return h.Get("By") == "another" },
			Wait:     func(context.Context, uint64) error { waited.Add(1); return nil },
		}
	})
	b.publish(lifecycle("own")...)
	b.publish(lifecycle("others")...)
	for range 3 {
		_, err := b.js.PublishMsg(t.Context(), &nats.Msg{
			Subject: "log.own", Header: nats.Header{"By": {"engine"}},
		})
		require.NoError(t, err)
	}
	w.awaitEnd()
	require.Zero(t, waited.Load())
	_, err = b.js.PublishMsg(t.Context(), &nats.Msg{
		Subject: "log.others", Header: nats.Header{"By": {"another"}},
	})
	require.NoError(t, err)
	w.reaches("others", 10)
	_, held := w.Snapshot("own")
	require.False(t, held)
	w.awaitEnd()
}

// A gap is read again from the stream, and is natural when the stream has it too.
func TestAGapIsAnAlert(t *testing.T) {
	t.Parallel()
	b := newBus(t)
	w := b.run()
	records := lifecycle("run")
	for i := range records[4:] {
		records[4+i].RunSeq += 3
	}
	b.publish(records...)
	want, _, err := runevents.Project("run", records)
	require.NoError(t, err)
	require.Equal(t, want, w.reaches("run", 13))
	require.Equal(t, []string{"PROJECTOR_NON_CONTIGUOUS_FETCH_DETECTED run-5"}, w.codes())
	w.awaitEnd()
}

// Of a run whose beginning was discarded before it was seen nothing is projected, and nothing is
// told.
func TestARunWhoseBeginningWasDiscarded(t *testing.T) {
	t.Parallel()
	b := newBus(t)
	records := lifecycle("run")
	b.publish(lifecycle("before")...)
	b.publish(records[:7]...)
	b.purge(15)
	w := b.run()
	for i, part := range [][]runevents.Record{records[7:9], records[9:]} {
		b.publish(part...)
		next := fmt.Sprint("next-", i)
		b.publish(lifecycle(next)...)
		w.reaches(next, 10)
		_, ok := w.Snapshot("run")
		require.False(t, ok)
	}
	w.awaitEnd()
	require.Empty(t, w.codes())
}

// A run that was seen from its beginning goes on, whatever of it was discarded meanwhile.
func TestARunThatWasSeenGoesOn(t *testing.T) {
	t.Parallel()
	b := newBus(t)
	w := b.run()
	records := lifecycle("run")
	b.publish(records[:5]...)
	w.reaches("run", 5)
	b.purge(5)
	b.publish(records[5:]...)
	want, _, err := runevents.Project("run", records)
	require.NoError(t, err)
	require.Equal(t, want, w.reaches("run", 10))
	require.Empty(t, w.codes())
}

// A run that was forgotten is read again when it goes on.
func TestARunThatWasForgottenGoesOn(t *testing.T) {
	t.Parallel()
	b := newBus(t)
	w := b.run(func(c *projection.Config) { c.MaxRuns = 2 })
	records := lifecycle("run")
	b.publish(records[:5]...)
	w.reaches("run", 5)
	for i := range 3 {
		b.publish(lifecycle(fmt.Sprintf("open-%d", i))[:2]...)
	}
	w.reaches("open-2", 2)
	_, ok := w.Snapshot("run")
	require.False(t, ok)
	b.publish(records[5:7]...)
	want, _, err := runevents.Project("run", records[:7])
	require.NoError(t, err)
	require.Equal(t, want, w.reaches("run", 7))
	require.Empty(t, w.codes())
}

func TestDamageIsSkipped(t *testing.T) {
	t.Parallel()
	b := newBus(t)
	w := b.run()
	records := lifecycle("run")
	b.publish(records[:2]...)
	b.put("run", []byte("no JSON"))
	b.put("run", []byte(`{"runId":"run","runSeq":0}`))
	b.publish(records[4:]...)
	require.Equal(t, int64(10), w.reaches("run", 10).LastEventSeq)
	require.Equal(t, []string{
		"PROJECTOR_NON_CONTIGUOUS_FETCH_DETECTED run-5", "INVALID_TRANSITION run-5",
		"PROJECTOR_CAUSAL_VIOLATION run-5",
	}, w.codes())
	w.awaitEnd()
}

// What was removed from the end of the stream is not waited for.
func TestRemovedEventsAreNoLag(t *testing.T) {
	t.Parallel()
	b := newBus(t)
	w := b.run()
	b.publish(lifecycle("run")...)
	w.reaches("run", 10)
	w.stop()
	b.publish(lifecycle("removed")...)
	stream, err := b.js.Stream(t.Context(), streamName)
	require.NoError(t, err)
	require.NoError(t, stream.Purge(t.Context()))
	again := b.run()
	again.awaitEnd()
	b.publish(lifecycle("next")...)
	again.reaches("next", 10)
}

func TestItSurvivesTheStream(t *testing.T) {
	t.Parallel()
	b := newBus(t)
	w := b.run()
	first, second := lifecycle("first"), lifecycle("second")
	b.publish(first...)
	b.publish(second[:4]...)
	w.reaches("second", 4)
	require.NoError(t, b.js.DeleteStream(t.Context(), streamName))
	b.create()
	b.publish(first...)
	b.publish(second...)
	b.publish(invalid("third")...)
	w.reaches("second", 10)
	w.reaches("third", 5)
	w.awaitEnd()
	require.Equal(t, []string{"INVALID_TRANSITION third-5", "PROJECTOR_CAUSAL_VIOLATION third-5"},
		w.codes())
}

func TestItSurvivesNATS(t *testing.T) {
	t.Parallel()
	server := newMortal(t)
	nc, err := nats.Connect(server.server.ClientURL(), nats.MaxReconnects(-1),
		nats.ReconnectWait(10*time.Millisecond))
	require.NoError(t, err)
	t.Cleanup(nc.Close)
	b := busOn(t, nc)
	w := b.run()
	first, second := lifecycle("first"), lifecycle("second")
	b.publish(first[:5]...)
	w.reaches("first", 5)
	for i, part := range [][]runevents.Record{first[5:], second} {
		server.restart()
		w.eventually(func() bool { // and not before it has noticed
			return nc.Stats().Reconnects > uint64(i) && nc.IsConnected()
		}, "reconnected")
		b.publish(part...)
		w.reaches(part[0].RunID, 10)
	}
	w.awaitEnd()
	require.Empty(t, slices.DeleteFunc(w.codes(), func(code string) bool {
		return strings.HasPrefix(code, "PROJECTOR_LAG_HIGH ") // that it was away may be long enough
	}))
}

// Events that come late are a lag, which grows as long as they wait.
func TestALagIsAnAlert(t *testing.T) {
	t.Parallel()
	b := newBus(t)
	var late atomic.Int64
	entered, open := make(chan runevents.Alert, 100), make(chan struct{})
	w := b.run(func(c *projection.Config) {
		c.Now = func() time.Time { return time.Now().Add(time.Duration(late.Load())) }
		c.Alert = func(_ string, a runevents.Alert) { entered <- a; <-open }
	})
	letGo := sync.OnceFunc(func() { close(open) })
	t.Cleanup(letGo) // else the runner would never end
	b.publish(lifecycle("first")...)
	w.reaches("first", 10)
	w.awaitEnd()
	late.Store(int64(time.Minute))
	b.publish(lifecycle("second")...)
	a := <-entered
	require.Equal(t, runevents.ProjectorLagHigh, a.Code)
	require.Equal(t, "first-10", a.EventID, "the last one that was projected")
	w.eventually(func() bool { return w.Behind() == 10 }, "all of them wait")
	require.GreaterOrEqual(t, w.Lag(), time.Minute)
	late.Store(int64(time.Hour))
	require.GreaterOrEqual(t, w.Lag(), time.Hour)
	late.Store(0)
	letGo()
	w.reaches("second", 10)
	w.awaitEnd()
}

// A run of more events than are held at once is projected to its end.
func TestALongRun(t *testing.T) {
	t.Parallel()
	b := newBus(t)
	records := lifecycle("run")
	told := records[0]
	told.EventType = "Told"
	long := slices.Clone(records[:1])
	for len(long) < 2_500 {
		told.EventID = fmt.Sprint("told-", len(long))
		long = append(long, told)
	}
	long = append(long, records[9])
	for i := range long {
		long[i].RunSeq = int64(i + 1)
		data, err := long[i].AppendJSON(nil)
		require.NoError(t, err)
		_, err = b.js.PublishAsync("events.town.run", data)
		require.NoError(t, err)
	}
	<-b.js.PublishAsyncComplete()
	w := b.run(lookBack(1))
	s := w.reaches("run", int64(len(long)))
	require.Equal(t, runevents.RunSucceeded, s.Status)
	require.Empty(t, w.codes())
}
