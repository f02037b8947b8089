package worldengine

import (
	"context"
	"errors"
	"log/slog"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/uuid"
	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
	"github.com/stretchr/testify/require"

	"worldengine/handoff"
	"worldengine/runevents"
	"worldengine/worldengine/alerts"
	"worldengine/worldengine/commitlog"
	"worldengine/worldengine/commitlog/logtest"
	"worldengine/worldengine/machine"
	"worldengine/worldengine/runs"
	"worldengine/worldengine/stepper"
	"worldengine/worldengine/town"
	"worldengine/worldengine/wire"
)

var byAda = &commitlog.PausedBy{ActorID: "ada", SignalID: "signal-1", Reason: "maintenance",
	At: time.Date(2026, 2, 16, 10, 0, 0, 0, time.UTC)}

// waitFixture is an engine over a log with the town "t".
type waitFixture struct {
	*Engine
	t     *testing.T
	ended *noEnds
	// alerted are the runs that operators were alerted about.
	alerted []string
}

// noEnds are runs of which none has ended, unless a test says so.
type noEnds struct {
	runs.Reader
	status runevents.RunStatus
	err    error
}

func (e *noEnds) Get(context.Context, string) (runevents.Snapshot, error) {
	return runevents.Snapshot{Status: e.status}, e.err
}

func newWaitFixture(t *testing.T) *waitFixture {
	log := logtest.New(t)
	_, err := log.Commit(t.Context(), logtest.Put(t, 1), 0)
	require.NoError(t, err)
	f := &waitFixture{t: t, ended: new(noEnds)}
	logger := slog.New(slog.DiscardHandler)
	f.Engine = &Engine{
		config: Config{World: "main", HistoryPerTown: 2, Logger: logger, PauseWait: time.Hour},
		log:    log, steps: &stepper.Stepper{Log: log, Now: time.Now, NewID: uuid.NewString},
		ends: &runs.Ends{Log: log, Runs: f.ended}, cancelled: newCancelled(),
		alerts: alerts.New(nil, alerts.Config{World: "main", Logger: logger, Now: time.Now,
			Notify: func(a runevents.Alert) { f.alerted = append(f.alerted, a.RunID) }}),
	}
	return f
}

// queue records a run that waits for the town, and returns its id.
func (f *waitFixture) queue() string {
	r := f.delivery()
	require.NoError(f.t, f.recordWait(f.t.Context(), r, nil))
	return r.run.RunID
}

// delivery returns a delivery that has to wait for the town.
func (f *waitFixture) delivery() *delivery {
	state := town.NewState(&town.Snapshot{SchemaVersion: town.SchemaVersion, TownID: "t", Day: 1})
	h, err := handoff.New(handoff.Proposal{
		Type: handoff.TalkToTownsfolk, ActorID: "mayor-1", TownID: "t", Reason: "Because.",
		Args: map[string]string{"talkType": "casual"}, SnapshotHash: state.Hash,
	})
	require.NoError(f.t, err)
	id := runevents.Identity{
		RunID: uuid.NewString(), TenantID: "tenant", ProjectID: "project",
		EnvironmentID: "environment", PlanID: h.ProposalID, PlanVersion: h.Proposal.SchemaVersion,
	}
	r := &delivery{run: id, handoff: h, queued: time.Now()}
	r.waited = true
	return r
}

// left are the runs without a delivery.
func (f *waitFixture) left() (ids []string) {
	for id, since := range f.waits.runs {
		if !since.IsZero() {
			ids = append(ids, id)
		}
	}
	return ids
}

func (f *waitFixture) tail(runID string) *commitlog.RunTail {
	tail, err := f.log.Tail(f.t.Context(), runID, 0)
	require.NoError(f.t, err)
	return &tail
}

// A waiting run of an earlier writer is ended with an alert; a record that the log no longer keeps
// has no run.
func TestReap_RunsOfAnEarlierWriter(t *testing.T) {
	t.Parallel()
	f := newWaitFixture(t)
	first, second := f.queue(), f.queue()
	clear(f.waits.runs)
	own := f.queue()
	f.findWaiting(t.Context(), []uint64{2, 3, 4, 9})
	f.reapLeft(t.Context())
	require.False(t, f.tail(own).Cancelled)
	require.True(t, f.tail(first).Cancelled)
	require.True(t, f.tail(second).Cancelled)
	require.ElementsMatch(t, []string{first, second}, f.alerted)
	require.Empty(t, f.left())
}

// racingStore calls a function before it stores the next message.
type racingStore struct {
	commitlog.Store
	before func()
}

func (s *racingStore) Publish(ctx context.Context, msg *nats.Msg) (*jetstream.PubAck, error) {
	if before := s.before; before != nil {
		s.before = nil
		before()
	}
	return s.Store.Publish(ctx, msg)
}

// A run that another ended first raises no alert.
func TestReap_EndedByAnother(t *testing.T) {
	t.Parallel()
	f := newWaitFixture(t)
	runID := f.queue()
	tail := f.tail(runID)
	f.log.Store = &racingStore{f.log.Store, func() {
		require.NoError(t, f.endWaiting(t.Context(), tail,
			machine.Cancellation{Reason: "An operator ended it."}))
	}}
	require.True(t, f.reap(t.Context(), runID, 0))
	require.True(t, f.tail(runID).Cancelled)
	require.Empty(t, f.alerted)
}

// discardingStore is a log that has discarded the messages of the town before a sequence.
type discardingStore struct {
	commitlog.Store
	from uint64
}

func (s *discardingStore) Next(
	ctx context.Context, subject string, seq uint64,
) (*jetstream.RawStreamMsg, error) {
	if subject == wire.LogSubject("main", "t") {
		seq = max(seq, s.from)
	}
	return s.Store.Next(ctx, subject, seq)
}

// A closed run whose decision the log has discarded has ended: it is not cancelled.
func TestReap_ForgottenEnd(t *testing.T) {
	t.Parallel()
	f := newWaitFixture(t)
	r := f.delivery()
	require.NoError(t, f.recordWait(t.Context(), r, nil))
	require.NoError(t, f.closeRun(t.Context(), r))
	runID := r.run.RunID
	_, err := f.log.Commit(t.Context(), logtest.Put(t, 2), 1)
	require.NoError(t, err)
	f.log.Store = &discardingStore{f.log.Store, f.tail(runID).Guard + 1}
	require.True(t, f.reap(t.Context(), runID, closingTime))
	require.False(t, f.tail(runID).Cancelled)
	require.Empty(t, f.alerted)
}

// events returns a run's events in the log, in their order.
func (f *waitFixture) events(runID string) (events []runevents.Event) {
	end, err := f.log.End(f.t.Context())
	require.NoError(f.t, err)
	for seq := uint64(1); seq <= end; seq++ {
		msg, err := f.log.At(f.t.Context(), seq)
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
func (f *waitFixture) types(runID string) string {
	var types []string
	for _, e := range f.events(runID) {
		types = append(types, string(e.EventType))
	}
	return strings.Join(types, ", ")
}

// A run's events begin with the wait that is recorded; waiting does not undo that.
func TestDelivery_Begin(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		r := &delivery{queued: time.Now(), retry: &machine.Retry{}}
		time.Sleep(time.Minute)
		require.Equal(t,
			machine.Begin{Start: machine.StartAtOnce, Waited: time.Minute, Retry: r.retry},
			r.begin())
		for status, want := range map[runevents.RunStatus]machine.Start{
			"":                    machine.StartQueued,
			runevents.RunPending:  machine.StartWaited,
			runevents.RunIsPaused: machine.StartResumed,
		} {
			r.tail.Status = status
			r.waited = true
			require.Equal(t, want, r.begin().Start)
		}
	})
}

// Each wait and each pause is recorded once, however many turns it lasts.
func TestWaiting_RecordOnce(t *testing.T) {
	t.Parallel()
	f := newWaitFixture(t)
	r := f.delivery()
	for range 2 {
		require.NoError(t, f.recordWait(t.Context(), r, nil))
	}
	require.Equal(t, "RunQueued", f.types(r.run.RunID))
	for range 2 {
		require.NoError(t, f.recordWait(t.Context(), r, byAda))
		require.NoError(t, f.recordWait(t.Context(), r, nil))
	}
	require.Equal(t, "RunQueued, RunStarted, RunPaused", f.types(r.run.RunID))
	require.True(t, isWaiting(f.tail(r.run.RunID)))
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
func (f *waitFixture) doubtful(r *delivery) {
	ctx, cancel := context.WithCancel(f.t.Context())
	store := &cutStore{f.log.Store, cancel}
	f.log.Store = store
	require.ErrorIs(f.t, f.recordWait(ctx, r, nil), commitlog.ErrLogUnavailable)
	store.cut = nil
}

// An event in doubt is stored again before anything else, and is there once: the run goes on from
// it, or is closed or cancelled behind it.
func TestWaiting_RunInDoubt(t *testing.T) {
	t.Parallel()
	for name, next := range map[string]struct {
		do   func(*waitFixture, *delivery) error
		want string
	}{
		"is queued": {func(f *waitFixture, r *delivery) error { return f.recordWait(f.t.Context(), r, nil) },
			"RunQueued"},
		"is paused": {
			func(f *waitFixture, r *delivery) error { return f.recordWait(f.t.Context(), r, byAda) },
			"RunQueued, RunStarted, RunPaused"},
		"is closed": {func(f *waitFixture, r *delivery) error { return f.closeRun(f.t.Context(), r) },
			"RunQueued"},
		"is cancelled": {func(f *waitFixture, r *delivery) error {
			f.abandon(f.t.Context(), r, errors.New("nobody waits for it"))
			return nil
		}, "RunQueued, RunStarted, RunCancelled"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			f := newWaitFixture(t)
			r := f.delivery()
			f.doubtful(r)
			require.NoError(t, next.do(f, r))
			require.Equal(t, next.want, f.types(r.run.RunID))
			require.Equal(t, name == "is closed", r.closed)
			require.Empty(t, f.left())
		})
	}
}

// A run that is closed for a decision accepts events of the engine alone; it is closed once, and
// reopened if it has to wait again.
func TestWaiting_Close(t *testing.T) {
	t.Parallel()
	f := newWaitFixture(t)
	fresh := f.delivery()
	require.NoError(t, f.closeRun(t.Context(), fresh))
	require.False(t, fresh.closed, "a run that is not recorded has nothing to close")
	require.Empty(t, f.types(fresh.run.RunID))

	r := f.delivery()
	require.NoError(t, f.recordWait(t.Context(), r, nil))
	f.reopenRun(t.Context(), r, 0)
	end, err := f.log.End(t.Context())
	require.NoError(t, err)
	for range 2 {
		require.NoError(t, f.closeRun(t.Context(), r))
		require.True(t, r.closed)
		require.True(t, f.tail(r.run.RunID).Closed)
		require.False(t, isWaiting(f.tail(r.run.RunID)))
	}
	f.reopenRun(t.Context(), r, 0)
	require.False(t, r.closed)
	require.True(t, isWaiting(f.tail(r.run.RunID)))
	now, err := f.log.End(t.Context())
	require.NoError(t, err)
	require.Equal(t, end+2, now)

	require.NoError(t, f.endWaiting(t.Context(), f.tail(r.run.RunID), machine.Cancellation{}))
	require.ErrorIs(t, f.closeRun(t.Context(), r), machine.ErrRunCancelled)
	require.False(t, r.closed)
}

// A run that cannot be ended now is left to reapWaiting, which ends it when the log answers again; one
// that an operator ended first, or without events, is done.
func TestWaiting_Cancel(t *testing.T) {
	t.Parallel()
	f := newWaitFixture(t)
	fresh := f.delivery()
	f.abandon(t.Context(), fresh, ErrStopping)
	require.Empty(t, f.types(fresh.run.RunID))

	r := f.delivery()
	require.NoError(t, f.recordWait(t.Context(), r, nil))
	ended, cancel := context.WithCancel(t.Context())
	cancel()
	f.abandon(ended, r, ErrStopping)
	require.Contains(t, f.left(), r.run.RunID)
	f.reapLeft(t.Context())
	require.Equal(t, []string{r.run.RunID}, f.alerted)
	require.Equal(t, "RunQueued, RunStarted, RunCancelled", f.types(r.run.RunID))
	require.Empty(t, f.left())

	f.abandon(t.Context(), r, ErrStopping)
	require.Equal(t, "RunQueued, RunStarted, RunCancelled", f.types(r.run.RunID))
	require.Empty(t, f.left())
}

// A closed run is being judged in its server: it is looked at again, and ended once the judgement
// must be over.
func TestReap_RunBeingJudged(t *testing.T) {
	t.Parallel()
	f := newWaitFixture(t)
	r := f.delivery()
	require.NoError(t, f.recordWait(t.Context(), r, nil))
	require.NoError(t, f.closeRun(t.Context(), r))
	runID := r.run.RunID
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
	f := newWaitFixture(t)
	runID := f.queue()
	f.ended.err = commitlog.ErrLogUnavailable
	require.False(t, f.reap(t.Context(), runID, 0))
	f.ended.err, f.ended.status = nil, runevents.RunSucceeded
	require.True(t, f.reap(t.Context(), runID, 0))
	require.Empty(t, f.alerted)
	require.Equal(t, "RunQueued", f.types(runID))
}
