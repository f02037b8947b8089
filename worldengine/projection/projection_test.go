package projection_test

import (
	"context"
	"os"
	"path/filepath"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/stretchr/testify/require"

	"worldengine/runevents"
	"worldengine/worldengine/commitlog/logtest"
	"worldengine/worldengine/index"
	"worldengine/worldengine/projection"
	"worldengine/worldengine/wire"
)

// An invalid transition raises one alert, with the town, however the run goes on.
func TestRunner_AlertsOnce(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	r := w.run(func(c *projection.Config) { c.Now = func() time.Time { return time.Unix(1, 0) } })
	want := w.invalid("run")
	r.reaches(1)
	require.Equal(t, want, r.codes())
	require.Equal(t, []string{"Town%201", "Town%201"}, r.towns)
	a := r.alerts[0]
	require.Equal(t, []any{"run", int64(2), "PENDING", "SUCCESS", "1970-01-01T00:00:01.000Z"},
		[]any{a.RunID, a.RunSeq, a.PriorState, a.AttemptedState, a.At})
	w.append(event("another", runevents.RunStarted, ""))
	r.reaches(w.append(event("run", runevents.RunCompleted, "")))
	require.Equal(t, want, r.codes())
}

// A run that goes on is projected, even if it was forgotten meanwhile: only the step that begins
// again raises an alert.
func TestRunner_RunGoesOn(t *testing.T) {
	t.Parallel()
	for name, maxRuns := range map[string]int{"remembered": 0, "forgotten": 1} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			w := newWorld(t)
			r := w.run(func(c *projection.Config) { c.MaxRuns = maxRuns })
			w.append(event("run", runevents.RunStarted, ""),
				event("run", runevents.StepStarted, "a"))
			r.reaches(w.append(event("another", runevents.RunStarted, "")))
			w.append(event("run", runevents.StepCompleted, "a"))
			r.reaches(w.append(event("third", runevents.RunStarted, "")))
			require.Empty(t, r.codes())
			again := event("run", runevents.StepSkipped, "a")
			r.reaches(w.append(again))
			require.Contains(t, r.codes(), "INVALID_TRANSITION "+again.EventID)
			for _, a := range r.alerts {
				require.Equal(t, again.EventID, a.EventID)
			}
		})
	}
}

// A run without its beginning, or a damaged one, is skipped without an alert. One that was
// projected before goes on.
func TestRunner_ExpiredAndDamagedRuns(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.append(event("expired", runevents.RunStarted, ""))
	config := w.log.Stream.CachedInfo().Config
	config.MaxMsgsPerSubject = 1
	_, err := logtest.JetStream(w.log).UpdateStream(t.Context(), config)
	require.NoError(t, err)
	w.append(event("expired", runevents.StepCompleted, "a"))
	r := w.run()
	w.append(event("seen", runevents.RunStarted, ""), event("seen", runevents.StepStarted, "a"))
	_, err = logtest.JetStream(w.log).PublishMsg(t.Context(), &nats.Msg{
		Subject: wire.RunSubject("main", "damaged"), Data: []byte("{"), Header: nats.Header{
			wire.KindHeader: {"events"}, wire.RunIDHeader: {"damaged"}, wire.RunSeqsHeader: {"1-1"},
		}})
	require.NoError(t, err)
	_, err = w.index.Sync(t.Context())
	require.NoError(t, err)
	r.reaches(4)
	again := event("seen", runevents.StepStarted, "a")
	again.LogicalAttemptID = 2
	again.IdempotencyKey = runevents.IdempotencyKey(runevents.KeyFields{RunID: again.RunID,
		StepID: "a", LogicalAttemptID: 2, EventType: again.EventType, PlanID: again.PlanID,
		PlanVersion: again.PlanVersion})
	w.append(event("seen", runevents.StepCompleted, "a"), again)
	r.reaches(w.append(event("expired", runevents.StepStarted, "b")))
	require.Empty(t, r.codes())
	want := w.invalid("next")
	r.reaches(7)
	require.Equal(t, want, r.codes())
}

// Events that come late cause a lag, which grows while they wait, and an alert.
func TestRunner_Lag(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	var late atomic.Int64
	entered, open := make(chan runevents.Alert, 100), make(chan struct{})
	r := w.run(func(c *projection.Config) {
		c.Now = func() time.Time { return time.Now().Add(time.Duration(late.Load())) }
		c.Alert = func(_ string, a runevents.Alert) { entered <- a; <-open }
	})
	letGo := sync.OnceFunc(func() { close(open) })
	t.Cleanup(letGo) // else the runner would never end
	first := event("first", runevents.RunStarted, "")
	r.reaches(w.append(first))
	late.Store(int64(time.Minute))
	end := w.append(event("second", runevents.RunStarted, ""))
	r.Kick()
	a := <-entered
	require.Equal(t, runevents.ProjectorLagHigh, a.Code)
	require.Equal(t, first.EventID, a.EventID, "the last one that was projected")
	require.Equal(t, uint64(1), r.Behind())
	require.Less(t, r.Position(), end)
	require.GreaterOrEqual(t, r.Lag(), time.Minute)
	late.Store(int64(time.Hour))
	require.GreaterOrEqual(t, r.Lag(), time.Hour)
	late.Store(0)
	letGo()
	r.reaches(end)
}

// slowSource shows its log once it is opened.
type slowSource struct {
	index.Source
	opened chan struct{}
}

func (s *slowSource) EachAfter(
	ctx context.Context, seq uint64, visit func(uint64, string, nats.Header) error,
) error {
	select {
	case <-s.opened:
		return s.Source.EachAfter(ctx, seq, visit)
	case <-ctx.Done():
		return ctx.Err()
	}
}

// A Runner starts at its predecessor's position, even over an index that is being built; without a
// valid file a little before the log's end.
func TestRunner_GoesOnAtItsPosition(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	file := filepath.Join(t.TempDir(), "projected")
	kept := func(c *projection.Config) { c.File = file }
	known := w.invalid("known")
	r := w.run(kept)
	r.reaches(1)
	require.Equal(t, known, r.codes())
	r.stop()
	fresh := w.invalid("fresh")

	source := &slowSource{index.LogSource(w.log), make(chan struct{})}
	x, err := index.Open(t.Context(), index.Config{World: "main", Source: source})
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, x.Close()) })
	r = w.run(kept, func(c *projection.Config) { c.Index, c.Runs = x, w.readBy(x) })
	close(source.opened)
	r.reaches(2)
	require.Equal(t, fresh, r.codes())
	r.stop()
	for _, damaged := range []bool{true, false} {
		if damaged {
			require.NoError(t, os.WriteFile(file, []byte("many"), 0o600))
		} else {
			require.NoError(t, os.Remove(file))
		}
		r = w.run(kept)
		r.reaches(2)
		require.ElementsMatch(t, append(known, fresh...), r.codes())
		r.stop()
	}
}
