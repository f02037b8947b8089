package waiting

import (
	"context"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
	"github.com/stretchr/testify/require"

	"worldengine/runevents"
	"worldengine/worldengine/commitlog"
	"worldengine/worldengine/machine"
)

// events returns a run's events in the log, in their order.
func (f *fixture) events(runID string) (events []runevents.Event) {
	end, err := f.steps.Log.End(f.t.Context())
	require.NoError(f.t, err)
	for seq := uint64(1); seq <= end; seq++ {
		msg, err := f.steps.Log.Message(f.t.Context(), seq)
		require.NoError(f.t, err)
		rec, err := commitlog.ReadRecord(msg.Data)
		require.NoError(f.t, err)
		if rec.Run != nil && rec.Run.RunID == runID {
			events = append(events, rec.Run.Events...)
		}
	}
	return events
}

// types returns the types of a run's events in the log.
func (f *fixture) types(runID string) string {
	var types []string
	for _, e := range f.events(runID) {
		types = append(types, string(e.EventType))
	}
	return strings.Join(types, ", ")
}

// A run's events begin with the wait that is recorded; waiting does not undo that.
func TestRun_Begin(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		r := &Run{Queued: time.Now(), Retry: &machine.Retry{}}
		time.Sleep(time.Minute)
		require.Equal(t,
			machine.Begin{Start: machine.StartAtOnce, Waited: time.Minute, Retry: r.Retry},
			r.Begin())
		for status, want := range map[runevents.RunStatus]machine.Start{
			"":                    machine.StartQueued,
			runevents.RunPending:  machine.StartWaited,
			runevents.RunIsPaused: machine.StartResumed,
		} {
			r.tail.Status = status
			r.Wait()
			require.Equal(t, want, r.Begin().Start)
		}
	})
}

// Each wait and each pause is recorded once, however many turns it lasts.
func TestStore_RecordOnce(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	r := f.run()
	for range 2 {
		require.NoError(t, f.Record(t.Context(), r, nil))
	}
	require.Equal(t, "RunQueued", f.types(r.Identity.RunID))
	for range 2 {
		require.NoError(t, f.Record(t.Context(), r, maintained))
		require.NoError(t, f.Record(t.Context(), r, nil))
	}
	require.Equal(t, "RunQueued, RunStarted, RunPaused", f.types(r.Identity.RunID))
	require.True(t, Waits(f.tail(r.Identity.RunID)))
}

// cutStore stores the next messages and then ends their requests, which get no answer.
type cutStore struct {
	commitlog.Store
	cut context.CancelFunc
}

func (s *cutStore) Publish(ctx context.Context, msg *nats.Msg) (*jetstream.PubAck, error) {
	ack, err := s.Store.Publish(ctx, msg)
	if s.cut != nil {
		s.cut()
		return nil, nats.ErrTimeout
	}
	return ack, err
}

// doubtful has the wait of a run stored, but not answered.
func (f *fixture) doubtful(r *Run) {
	ctx, cancel := context.WithCancel(f.t.Context())
	store := &cutStore{f.steps.Log.Store, cancel}
	f.steps.Log.Store = store
	require.ErrorIs(f.t, f.Record(ctx, r, nil), commitlog.ErrLogUnavailable)
	store.cut = nil
}

// An event in doubt is stored again before anything else, and is there once: the run goes on from
// it, or is closed or cancelled behind it.
func TestStore_RunInDoubt(t *testing.T) {
	t.Parallel()
	for name, next := range map[string]struct {
		do   func(*fixture, *Run) error
		want string
	}{
		"is queued": {func(f *fixture, r *Run) error { return f.Record(f.t.Context(), r, nil) },
			"RunQueued"},
		"is paused": {
			func(f *fixture, r *Run) error { return f.Record(f.t.Context(), r, maintained) },
			"RunQueued, RunStarted, RunPaused"},
		"is closed": {func(f *fixture, r *Run) error { return f.Close(f.t.Context(), r) },
			"RunQueued"},
		"is cancelled": {func(f *fixture, r *Run) error {
			f.Cancel(f.t.Context(), r, machine.Cancellation{Reason: "Nobody waits for it."})
			return nil
		}, "RunQueued, RunStarted, RunCancelled"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			f := newFixture(t)
			r := f.run()
			f.doubtful(r)
			require.NoError(t, next.do(f, r))
			require.Equal(t, next.want, f.types(r.Identity.RunID))
			require.Equal(t, name == "is closed", r.Closed)
			require.Empty(t, f.left)
		})
	}
}

// A run that is closed for a decision accepts events of the engine alone; it is closed once, and
// reopened if it has to wait again.
func TestStore_Close(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	fresh := f.run()
	require.NoError(t, f.Close(t.Context(), fresh))
	require.False(t, fresh.Closed, "a run that is not recorded has nothing to close")
	require.Empty(t, f.types(fresh.Identity.RunID))

	r := f.run()
	require.NoError(t, f.Record(t.Context(), r, nil))
	f.Reopen(t.Context(), r, 0)
	end, err := f.steps.Log.End(t.Context())
	require.NoError(t, err)
	for range 2 {
		require.NoError(t, f.Close(t.Context(), r))
		require.True(t, r.Closed)
		require.True(t, f.tail(r.Identity.RunID).Closed)
		require.False(t, Waits(f.tail(r.Identity.RunID)))
	}
	f.Reopen(t.Context(), r, 0)
	require.False(t, r.Closed)
	require.True(t, Waits(f.tail(r.Identity.RunID)))
	now, err := f.steps.Log.End(t.Context())
	require.NoError(t, err)
	require.Equal(t, end+2, now)

	require.NoError(t, f.End(t.Context(), f.tail(r.Identity.RunID), machine.Cancellation{}))
	require.ErrorIs(t, f.Close(t.Context(), r), machine.ErrRunCancelled)
	require.False(t, r.Closed)
}

// A run that cannot be ended now is left to Reap, which ends it when the log answers again; one
// that an operator ended first, or without events, is done.
func TestStore_Cancel(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	why := machine.Cancellation{Reason: "The server stops."}
	fresh := f.run()
	f.Cancel(t.Context(), fresh, why)
	require.Empty(t, f.types(fresh.Identity.RunID))

	r := f.run()
	require.NoError(t, f.Record(t.Context(), r, nil))
	ended, cancel := context.WithCancel(t.Context())
	cancel()
	f.Cancel(ended, r, why)
	require.Contains(t, f.left, r.Identity.RunID)
	f.reapLeft(t.Context())
	require.Equal(t, []string{r.Identity.RunID}, f.alerted)
	require.Equal(t, "RunQueued, RunStarted, RunCancelled", f.types(r.Identity.RunID))
	require.Empty(t, f.left)

	f.Cancel(t.Context(), r, why)
	require.Equal(t, "RunQueued, RunStarted, RunCancelled", f.types(r.Identity.RunID))
	require.Empty(t, f.left)
}

// A closed run is being judged in its server: it is looked at again, and ended once the judgement
// must be over.
func TestReap_RunBeingJudged(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	r := f.run()
	require.NoError(t, f.Record(t.Context(), r, nil))
	require.NoError(t, f.Close(t.Context(), r))
	runID := r.Identity.RunID
	require.False(t, f.reap(t.Context(), runID, closingTime-1))
	require.Empty(t, f.alerted)
	require.False(t, f.tail(runID).Cancelled)

	require.True(t, f.reap(t.Context(), runID, closingTime))
	require.Equal(t, []string{runID}, f.alerted)
	require.Equal(t, "RunQueued, RunStarted, RunCancelled", f.types(runID))
	require.JSONEq(t, `{"code": "SERVER_GONE",
		"reason": "The server in which the handoff waited did not judge it."}`,
		string(f.events(runID)[2].Payload))
}

// A run with an end in its events is over; if they cannot be read it is looked at again.
func TestReap_EndedRun(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	runID := f.queue()
	f.runs.err = commitlog.ErrLogUnavailable
	require.False(t, f.reap(t.Context(), runID, 0))
	f.runs.err, f.runs.status = nil, runevents.RunSucceeded
	require.True(t, f.reap(t.Context(), runID, 0))
	require.Empty(t, f.alerted)
	require.Equal(t, "RunQueued", f.types(runID))
}
