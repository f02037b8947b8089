package engine

import (
	"context"
	"log/slog"
	"slices"
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/nats-io/nats.go/jetstream"
	"github.com/stretchr/testify/require"

	"worldengine/handoff"
	"worldengine/runevents"
	"worldengine/trace"
	"worldengine/worldengine/internal/core/apply"
	"worldengine/worldengine/internal/core/machine"
	"worldengine/worldengine/internal/core/town"
	"worldengine/worldengine/internal/core/town/towntest"
	"worldengine/worldengine/internal/engine/queue"
	"worldengine/worldengine/internal/engine/stepper"
	"worldengine/worldengine/internal/kit/layout"
	"worldengine/worldengine/internal/store/alerts"
	"worldengine/worldengine/internal/store/alerts/alertstest"
	"worldengine/worldengine/internal/store/commitlog"
	"worldengine/worldengine/internal/store/commitlog/logtest"
	"worldengine/worldengine/internal/store/index"
	"worldengine/worldengine/internal/store/records"
	"worldengine/worldengine/internal/store/runs"
	"worldengine/worldengine/internal/store/sidestream"
	"worldengine/worldengine/internal/store/worldsettings"
	"worldengine/worldengine/internal/testkit/natstest"
	"worldengine/worldengine/messages"
	"worldengine/worldengine/wire"
)

// proposed returns a handoff for the town "t" in a state without anything.
func proposed(t *testing.T) (*handoff.Handoff, town.State) {
	t.Helper()
	state := town.NewState(&town.Snapshot{SchemaVersion: town.SchemaVersion, TownID: "t"})
	h, err := handoff.New(handoff.Proposal{
		Type: handoff.TalkToTownsfolk, ActorID: "mayor-1", TownID: "t", Reason: "Because.",
		Args: map[string]string{"talkType": "casual"}, SnapshotHash: state.Hash,
	})
	require.NoError(t, err)
	return h, state
}

// A run that waited in a dead server ends soon after the next start, with an alert.
func TestEngine_RunThatADeadServerLeft(t *testing.T) {
	t.Parallel()
	nc := natstest.Connect(t)
	dying := natstest.Dial(t, nc.ConnectedUrl())
	first, err := Open(t.Context(), dying, dying,
		Config{PauseTimeout: time.Hour, Logger: slog.New(slog.DiscardHandler)})
	require.NoError(t, err)
	h, state := proposed(t)
	_, err = first.Changes().Put(t.Context(), state, "")
	require.NoError(t, err)
	_, err = first.Signals().Handle(t.Context(), Signal{Kind: machine.SignalPause, TownID: "t"})
	require.NoError(t, err)
	require.NoError(t, first.Handoffs().Submit(h, nil, trace.Context{}, queue.NewFuture[Answer]()))
	waits := func(e *Engine, status runevents.RunStatus) bool {
		page, err := e.Runs().List(t.Context(), index.Filter{Towns: []string{"t"}}, 0, 10)
		return err == nil && slices.ContainsFunc(page.Runs,
			func(r messages.RunRow) bool { return r.Status == status })
	}
	require.Eventually(t, func() bool { return waits(first, runevents.RunStatusPaused) },
		30*time.Second, 10*time.Millisecond)
	dying.Close() // as by kill -9: nothing of it reaches NATS any more

	told := make(alertstest.Notified, 16)
	next, err := Open(t.Context(), nc, nc, Config{Notifier: told})
	require.NoError(t, err)
	t.Cleanup(func() { _ = next.Close(context.Background()) })
	require.Eventually(t, func() bool { return waits(next, runevents.RunStatusCancelled) }, time.Minute,
		50*time.Millisecond)
	alert := <-told
	require.Equal(t, runevents.RunLeftWaiting, alert.Code)
	require.Contains(t, alert.Message, `town "t"`)
	require.False(t, waits(next, runevents.RunStatusPaused))
	over, cancel := context.WithCancel(t.Context())
	cancel()
	_ = first.Close(over)
}

// A server that was suspended judges no handoff in hand if the next writer has paused the world.
func TestEngine_PausedByTheNextWriter(t *testing.T) {
	t.Parallel()
	nc := natstest.Connect(t)
	engine := func(leased bool) *Engine {
		e, err := Open(t.Context(), nc, nc, Config{PauseTimeout: time.Millisecond,
			HasLease: func() bool { return leased }, Logger: slog.New(slog.DiscardHandler)})
		require.NoError(t, err)
		t.Cleanup(func() { _ = e.Close(context.Background()) })
		return e
	}
	suspended, next := engine(false), engine(true)
	h, state := proposed(t)
	_, err := suspended.Changes().Put(t.Context(), state, "")
	require.NoError(t, err)
	_, err = next.Signals().Handle(t.Context(), Signal{Kind: machine.SignalPause})
	require.NoError(t, err)
	reply := queue.NewFuture[Answer]()
	require.NoError(t, suspended.Handoffs().Submit(h, nil, trace.Context{}, reply))
	_, err = reply.Wait(t.Context())
	var waited *WaitError
	require.ErrorAs(t, err, &waited)
	require.Equal(t, wire.CodeWorldPaused, waited.Code)
}

// A handoff whose run the next writer has ended is not judged again after a lost race.
func TestJudge_EndedByTheNextWriter(t *testing.T) {
	t.Parallel()
	nc := natstest.Connect(t)
	engine := func() *Engine {
		e, err := Open(t.Context(), nc, nc, Config{Logger: slog.New(slog.DiscardHandler)})
		require.NoError(t, err)
		t.Cleanup(func() { _ = e.Close(context.Background()) })
		return e
	}
	suspended, next := engine(), engine()
	h, state := proposed(t)
	put, err := suspended.Changes().Put(t.Context(), state, "")
	require.NoError(t, err)
	d, err := suspended.handoffs.newDelivery(h, trace.Context{})
	require.NoError(t, err)
	require.NoError(t, d.recordWait(t.Context(), nil))
	require.NoError(t, d.stepRun(t.Context(), &machine.Wait{Handoff: h, Run: d.run, Closing: true}))

	moved := *state.Snapshot
	moved.Day++
	_, err = next.Changes().Put(t.Context(), town.NewState(&moved), put.SnapshotHash)
	require.NoError(t, err)
	tail, err := next.log.Tail(t.Context(), d.run.RunID, 0)
	require.NoError(t, err)
	require.NoError(t, next.background.reaper.cancelLeftRun(t.Context(), &tail,
		machine.Cancellation{Code: machine.CancelledLeft, Reason: "It was left."}))
	_, _, err = d.judgeInTurn(t.Context(), nil)
	require.ErrorIs(t, err, machine.ErrRunCancelled)
}

// A repetition that has had no turn yet is cancelled with the run of the first.
func TestEngine_CancelledBeforeTheFirstTurn(t *testing.T) {
	t.Parallel()
	nc := natstest.Connect(t)
	e, err := Open(t.Context(), nc, nc, Config{PauseTimeout: time.Hour})
	require.NoError(t, err)
	t.Cleanup(func() { _ = e.Close(context.Background()) })
	h, state := proposed(t)
	_, err = e.Changes().Put(t.Context(), state, "")
	require.NoError(t, err)
	_, err = e.Signals().Handle(t.Context(), Signal{Kind: machine.SignalPause, TownID: "t"})
	require.NoError(t, err)
	send := func() queue.Future[Answer] {
		reply := queue.NewFuture[Answer]()
		require.NoError(t, e.Handoffs().Submit(h, nil, trace.Context{}, reply))
		return reply
	}
	for range 4 {
		first, runID := send(), ""
		require.Eventually(t, func() bool {
			page, err := e.Runs().List(t.Context(),
				index.Filter{Towns: []string{"t"}, Status: string(runevents.RunStatusPaused)}, 0, 10)
			if err != nil || len(page.Runs) == 0 {
				return false
			}
			runID = page.Runs[0].RunID
			return true
		}, 30*time.Second, 10*time.Millisecond)
		again := send()
		_, err = e.Signals().Handle(t.Context(), Signal{Kind: machine.SignalCancel, RunID: runID})
		require.NoError(t, err)
		for _, reply := range []queue.Future[Answer]{first, again} {
			ctx, cancel := context.WithTimeout(t.Context(), 30*time.Second)
			_, err = reply.Wait(ctx)
			cancel()
			var waited *WaitError
			require.ErrorAs(t, err, &waited)
			require.Equal(t, []string{string(wire.CodeRunCancelled), runID},
				[]string{string(waited.Code), waited.RunID})
		}
	}
}

// A command that is left to the next server is no error of the server that stops.
func TestEngine_AdoptWhileStopping(t *testing.T) {
	t.Parallel()
	said, log := &natstest.Buffer{}, logtest.New(t)
	after := machine.Town{State: towntest.Threatened(), Pending: &apply.Pending{Binding: apply.Plugin,
		Attempt: 1, Handoff: []byte("{}"), Expected: []byte("{}"), Run: runevents.Identity{RunID: "r"}}}
	require.NoError(t, log.CommitTown(t.Context(),
		&machine.Record{Kind: machine.KindPending, TownID: "town-threatened"}, &after, 0))
	f := &follower{log: log, queue: newQueue(t.Context(), &Config{}), logger: slog.New(slog.NewTextHandler(said, nil))}
	require.NoError(t, f.queue.Drain(t.Context()))
	f.adopt(t.Context(), wire.TownToken("town-threatened"))
	require.Empty(t, said.String())
}

// discardingStore is a log that has discarded the messages of the town before a sequence.
type discardingStore struct {
	commitlog.Store
	from uint64
}

func (s *discardingStore) Next(
	ctx context.Context, subject string, seq uint64,
) (*jetstream.RawStreamMsg, error) {
	if subject == layout.LogSubject("main", "t") {
		seq = max(seq, s.from)
	}
	return s.Store.Next(ctx, subject, seq)
}

// openRuns are runs of which none has ended.
type openRuns struct{ runs.RunGetter }

func (openRuns) Get(context.Context, string) (runevents.Snapshot, error) {
	return runevents.Snapshot{}, nil
}

// A closed run is being judged: it is cancelled, with an alert, once the judgement must be over. If
// the log has discarded records of the town since, the decision may be among them.
func TestReap_ClosedRun(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		gone                                   time.Duration
		inHand, discarded, raised, isCancelled bool
	}{
		"has a delivery":          {gone: closingTimeout, inHand: true},
		"may be judged yet":       {},
		"is left":                 {gone: closingTimeout, isCancelled: true},
		"may have ended":          {discarded: true},
		"may have ended long ago": {gone: closingTimeout, discarded: true},
		"may have ended before the history was raised": {gone: closingTimeout, discarded: true,
			raised: true},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			log := logtest.New(t)
			_, err := log.Commit(t.Context(), logtest.Put(t, 1), 0)
			require.NoError(t, err)
			js := logtest.JetStream(log)
			keep := func(history int64) {
				_, err := worldsettings.Change(t.Context(), js, "main",
					worldsettings.Settings{HistoryPerTown: history}, true)
				require.NoError(t, err)
			}
			var alerted []string
			logger := slog.New(slog.DiscardHandler)
			steps := &stepper.Stepper{Log: log, TownCache: records.NewTownCache(log), Now: time.Now, NewID: uuid.NewString,
				HasLease: func() bool { return true }}
			r := &reaper{
				log: log, stepper: steps, logger: logger,
				handoffs:     &Handoffs{log: log, stepper: steps, logger: logger},
				finalRecords: &runs.FinalRecords{Log: log, Runs: openRuns{}},
				now:          func() time.Time { return time.Now().Add(c.gone) },
				alerts: alerts.New(nil, alerts.Config{Log: sidestream.Log{World: "main"}, Logger: logger, Now: time.Now,
					Notify: func(a runevents.Alert) { alerted = append(alerted, a.RunID) }}),
			}
			h, _ := proposed(t)
			d := &delivery{handoffs: r.handoffs, handoff: h, submittedAt: time.Now(), waited: true, run: logtest.RunOf(h)}
			require.NoError(t, d.recordWait(t.Context(), nil))
			require.NoError(t, d.stepRun(t.Context(), &machine.Wait{Handoff: h, Run: d.run, Closing: true}))
			tail := func() machine.RunTail {
				tail, err := log.Tail(t.Context(), d.run.RunID, 0)
				require.NoError(t, err)
				return tail
			}
			if c.discarded {
				_, err = log.Commit(t.Context(), logtest.Put(t, 2), 1)
				require.NoError(t, err)
				keep(2)
				if c.raised {
					keep(100)
				}
				log.Store = &discardingStore{log.Store, tail().Guard + 1}
			}
			r.handoffs.queue = newQueue(t.Context(), &Config{Bounds: Bounds{PerTown: 1, Total: 1}}) // without workers
			if c.inHand {
				require.NoError(t, r.handoffs.queue.SubmitTask("t", d))
			} else {
				d.cancelWaiting(t.Context(), commitlog.ErrLogUnavailable)
			}
			first, err := log.Next(t.Context(), layout.RunSubject("main", d.run.RunID), 1)
			require.NoError(t, err)
			r.reap(t.Context(), first.Sequence)
			require.Equal(t, c.isCancelled, tail().Cancelled)
			require.Equal(t, c.isCancelled, len(alerted) > 0)
		})
	}
}
