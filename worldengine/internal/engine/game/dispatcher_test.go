package game_test

import (
	"cmp"
	"context"
	"errors"
	"log/slog"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"worldengine/handoff"
	"worldengine/runevents"
	"worldengine/schemas"
	"worldengine/worldengine/internal/core/apply"
	"worldengine/worldengine/internal/core/machine"
	"worldengine/worldengine/internal/core/machine/machinetest"
	"worldengine/worldengine/internal/core/runlog"
	"worldengine/worldengine/internal/core/town"
	"worldengine/worldengine/internal/core/town/towntest"
	"worldengine/worldengine/internal/engine/game"
	"worldengine/worldengine/internal/engine/queue"
	"worldengine/worldengine/internal/engine/stepper"
	"worldengine/worldengine/internal/engine/waiting"
	"worldengine/worldengine/internal/kit/layout"
	"worldengine/worldengine/internal/store/alerts"
	"worldengine/worldengine/internal/store/commitlog"
	"worldengine/worldengine/internal/store/commitlog/logtest"
	"worldengine/worldengine/internal/store/index/indextest"
	"worldengine/worldengine/internal/store/records"
	"worldengine/worldengine/internal/store/runs"
	"worldengine/worldengine/internal/testkit/natstest"
	"worldengine/worldengine/messages"
	"worldengine/worldengine/wire"
)

func TestMain(m *testing.M) { natstest.Main(m, 4) }

// working is a dispatcher with one command in its log. It keeps the alerts of the dispatcher, and counts its
// attempts.
type working struct {
	*game.Dispatcher
	t       *testing.T
	log     *records.Log
	steps   *stepper.Stepper
	config  game.Config
	current machine.Town // the town, with its pending command

	mu       sync.Mutex
	alerts   []runevents.AlertCode
	raised   []runevents.Alert
	attempts int
	// meanwhile is called when an alert was stored.
	meanwhile func()
}

func (w *working) RaiseOnce(a runevents.Alert) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.alerts, w.raised = append(w.alerts, a.Code), append(w.raised, a)
}

func (w *working) Raise(a runevents.Alert) { w.RaiseOnce(a) }

func (w *working) RaiseStored(_ context.Context, a runevents.Alert) error {
	w.RaiseOnce(a)
	if w.meanwhile != nil {
		w.meanwhile()
	}
	return nil
}

func (*working) All(context.Context) ([]messages.Alert, error) { return nil, nil }

func (w *working) codes() []runevents.AlertCode {
	w.mu.Lock()
	defer w.mu.Unlock()
	return slices.Clone(w.alerts)
}

func (w *working) Attempt(apply.Binding, apply.AttemptResult, time.Duration) { w.attempts++ }

// work starts a dispatcher with one accepted command, after change has changed its configuration.
func work(
	t *testing.T, change func(*game.Config), accepted ...func(*apply.Pending),
) *working {
	t.Helper()
	w := &working{t: t, log: logtest.New(t)}
	logger, ix := slog.New(slog.DiscardHandler), indextest.Open(t, w.log)
	turns := queue.New(context.Background(), queue.Config{Workers: 2, PerTown: 8,
		Total: 8, Logger: logger})
	inbox := game.NewInbox(logtest.JetStream(w.log).Conn(), w)
	require.NoError(t, inbox.Start(t.Context()))
	w.config = game.Config{
		Limits: waiting.Limits{Pause: time.Hour}, Timeout: 30 * time.Second,
		Retry: apply.RetryPolicy{Deadline: 30 * time.Second, Attempts: 2,
			Backoff: time.Millisecond}.WithDefaults(),
		FinalRecords: &runs.FinalRecords{Log: w.log, Runs: runs.New(w.log, ix, func(runevents.Alert) {})},
		WorldPause:   waiting.NewWorldPause(w.log, turns.WakeAll),
		Queue:        turns, Router: inbox, Alerts: w, Metrics: w, Logger: logger,
	}
	if change != nil {
		change(&w.config)
	}
	w.again()
	t.Cleanup(func() {
		w.halt()
		require.NoError(t, turns.Drain(context.Background()))
		require.NoError(t, inbox.Stop(context.Background()))
	})
	w.accept(accepted)
	w.current = w.town()
	return w
}

// accept commits that a game applies a handoff. It draws the ids of later events after the changes.
func (w *working) accept(changes []func(*apply.Pending)) {
	h := machinetest.Advance(w.t, "wall", machinetest.WallExists)
	out, err := machine.Step(machine.Town{State: towntest.Threatened(), Binding: apply.Plugin},
		w.steps.Input(h.Proposal.TownID, nil, &machine.Judge{
			Handoff: h, Run: logtest.RunOf(h),
		}), &w.steps.Settings)
	require.NoError(w.t, err)
	pending := out.NextTown.Pending
	for _, change := range changes {
		change(pending)
	}
	pending.EventIDs, err = runlog.DrawIDs(pending.Run, uuid.NewString, nil,
		machine.NextEvents(pending.Attempt)...)
	require.NoError(w.t, err)
	require.NoError(w.t, w.log.CommitTown(w.t.Context(), out.Record, &out.NextTown, 0))
}

// halt stops the dispatcher without waiting for games.
func (w *working) halt() {
	over, cancel := context.WithCancel(context.Background())
	cancel()
	w.Stop(over)
}

// again starts the dispatcher of the next writer.
func (w *working) again() {
	w.steps = &stepper.Stepper{Log: w.log, TownCache: records.NewTownCache(w.log), Now: time.Now, NewID: uuid.NewString,
		HasLease: func() bool { return true },
		Settings: machine.Settings{Rules: new(town.DefaultRules()), Retry: w.config.Retry}}
	w.Dispatcher = game.New(context.Background(), w.steps, w.config)
}

// signalRun returns the run of a signal.
func signalRun() runevents.Identity {
	return runevents.Identity{
		RunID: uuid.NewString(), TenantID: "default", ProjectID: "main", EnvironmentID: "local",
		PlanID: machine.SignalPlan, PlanVersion: machine.SignalVersion,
	}
}

// cancellation is the signal that cancels the run of the command.
func (w *working) cancellation() machine.Signal {
	return machine.Signal{Kind: machine.SignalCancel, TownID: "town-threatened",
		RunID: w.current.Pending.Run.RunID, Run: signalRun()}.WithDefaults()
}

// town returns the town as the log has it.
func (w *working) town() machine.Town {
	current, err := w.log.Load(w.t.Context(), "town-threatened")
	require.NoError(w.t, err)
	return current
}

// answered is a client's answer.
type answered struct {
	machine.Answer
	err error
}

// client keeps an answer.
type client chan answered

func (c client) Answer(a machine.Answer, err error) { c <- answered{a, err} }

// execute starts the execution of the command, which this writer has committed for a client.
func (w *working) execute() client {
	w.t.Helper()
	got := make(client, 1)
	require.NoError(w.t, w.Execute(w.t.Context(), "town-threatened", w.current, got))
	return got
}

// callInTurn calls f in a turn of the town, and returns the error with which f calls done.
func (w *working) callInTurn(f func(ctx context.Context, done func(error))) error {
	w.t.Helper()
	reply := queue.NewFuture[struct{}]()
	require.NoError(w.t, w.config.Queue.RunNext("town-threatened", func(ctx context.Context) {
		f(ctx, func(err error) { reply.Answer(struct{}{}, err) })
	}))
	_, err := reply.Wait(w.t.Context())
	return err
}

// cancel cancels a run.
func (w *working) cancel(s *machine.Signal) error {
	return w.callInTurn(func(ctx context.Context, done func(error)) { w.Cancel(ctx, w.t.Context(), s, done) })
}

func (w *working) await(from client) (a answered) {
	w.t.Helper()
	select {
	case a = <-from:
	case <-time.After(60 * time.Second):
		w.t.Fatal("the client got no answer")
	}
	return a
}

// adopt makes the dispatcher agree with the town as the log has it.
func (w *working) adopt() {
	w.t.Helper()
	require.NoError(w.t, w.callInTurn(func(ctx context.Context, done func(error)) {
		current, err := w.log.Load(ctx, "town-threatened")
		done(cmp.Or(err, w.Reconcile(ctx, "town-threatened", current)))
	}))
}

// concluded returns the result of the command's run once the log has it.
func (w *working) concluded() *handoff.Result {
	w.t.Helper()
	require.Eventually(w.t, func() bool { return w.town().Pending == nil }, 60*time.Second,
		10*time.Millisecond)
	rec, err := w.config.FinalRecords.Find(w.t.Context(), w.current.Pending.Run.RunID)
	require.NoError(w.t, err)
	result, err := handoff.ParseResult(rec.Result, schemas.Limits{})
	require.NoError(w.t, err)
	return result
}

// plugin answers each command of the log's world.
func (w *working) plugin(answer func(*apply.Command) apply.GameAnswer) {
	w.t.Helper()
	nc := logtest.JetStream(w.log).Conn()
	_, err := nc.Subscribe(wire.ApplySubject("main", "*"), func(msg *nats.Msg) {
		if c, err := apply.ParseCommand(msg.Data, schemas.Limits{}); err == nil {
			a := answer(c)
			data, _ := a.MarshalWire()
			_ = msg.Respond(data)
		}
	})
	require.NoError(w.t, err)
	require.NoError(w.t, nc.Flush())
}

// A plugin's last answer ends a command, in the log and for its client.
func TestDispatcher_PluginEnds(t *testing.T) {
	t.Parallel()
	for _, row := range []struct {
		name     string
		answer   func(*apply.Command) apply.GameAnswer
		status   handoff.Status
		reason   handoff.ReasonCode
		attempts int
		alerts   []runevents.AlertCode
	}{
		{"applied", apply.Done, handoff.Executed, handoff.ReasonExecuted, 1, nil},
		{"refused", func(c *apply.Command) apply.GameAnswer {
			return apply.Refuse(c, "NO", "no", false)
		}, handoff.Failed, apply.ReasonPluginRejected, 1, nil},
		{"refused for now, then applied", func(c *apply.Command) apply.GameAnswer {
			if c.LogicalAttemptID == 1 {
				return apply.Refuse(c, "LATER", "later", true)
			}
			return apply.Done(c)
		}, handoff.Executed, handoff.ReasonExecuted, 2, nil},
		{"a state that is none", func(c *apply.Command) apply.GameAnswer {
			a := apply.Done(c) // an alert says so, and not that the answer was late
			a.Snapshot = []byte(`{"day":1}`)
			return a
		}, handoff.Failed, apply.ReasonPluginStateInvalid, 2,
			[]runevents.AlertCode{runevents.PluginStateInvalid}},
	} {
		t.Run(row.name, func(t *testing.T) {
			t.Parallel()
			w := work(t, nil)
			hold := make(chan struct{})
			w.plugin(func(c *apply.Command) apply.GameAnswer {
				<-hold
				return row.answer(c)
			})
			before := w.current
			client := w.execute()
			close(hold)
			a := w.await(client)
			require.NoError(t, a.err)
			require.Equal(t, row.status, a.Result.Status)
			require.Equal(t, row.reason, a.Result.ReasonCode)
			require.Equal(t, before.Pending.Run.RunID, a.RunID)
			now := w.town()
			require.Nil(t, now.Pending)
			require.Equal(t, row.status == handoff.Executed, now.State.Hash != before.State.Hash)
			require.EqualValues(t, 1, w.steps.Results()[row.status])
			require.Equal(t, row.attempts, w.attempts)
			require.Equal(t, row.alerts, w.alerts)
			if row.reason == apply.ReasonPluginStateInvalid {
				require.Contains(t, w.raised[0].Message, "The reported state is not a snapshot.v1: ")
			}
			require.Zero(t, w.Count())
		})
	}
}

// An invalid answer counts as silence, and is logged.
func TestDispatcher_InvalidAnswer(t *testing.T) {
	t.Parallel()
	said := &natstest.Buffer{}
	w := work(t, func(c *game.Config) {
		c.Retry.Resend, c.Logger = 10*time.Millisecond, slog.New(slog.NewTextHandler(said, nil))
	})
	asked := 0
	w.plugin(func(c *apply.Command) apply.GameAnswer {
		if asked++; asked == 1 {
			return apply.Refuse(c, "not upper case", "no", false)
		}
		return apply.Done(c)
	})
	require.Equal(t, handoff.Executed, w.await(w.execute()).Result.Status)
	require.Equal(t, 1, w.attempts)
	require.Contains(t, said.String(), "a plugin's answer is invalid")
	require.Contains(t, said.String(), "/reasonCode")
}

// In a pause a plugin that works on the command is asked again, and its answer counts. A busy one is
// not asked, and the attempt's deadline stands still.
func TestDispatcher_AskedInPause(t *testing.T) {
	t.Parallel()
	for status, deadline := range map[apply.Status]time.Duration{
		apply.InProgress: time.Minute, apply.Busy: 2 * time.Second,
	} {
		t.Run(string(status), func(t *testing.T) {
			t.Parallel()
			resumed := status == apply.Busy
			var now *waiting.WorldPause
			w := work(t, func(c *game.Config) {
				now, c.Retry.Attempts, c.Retry.Deadline = c.WorldPause, 1, deadline
			})
			asked := new(atomic.Int64)
			w.plugin(func(c *apply.Command) apply.GameAnswer {
				switch {
				case asked.Add(1) > 1:
					return apply.Done(c)
				case resumed:
					time.AfterFunc(deadline, func() { now.Set(waiting.Pause{Seq: 2}) })
				}
				now.Set(waiting.Pause{Seq: 1, By: &messages.PausedBy{SignalID: "p"}})
				return apply.Later(c, status, time.Millisecond)
			})
			require.Equal(t, handoff.Executed, w.await(w.execute()).Result.Status)
			require.Equal(t, resumed, now.Known().By == nil)
			require.EqualValues(t, 2, asked.Load())
		})
	}
}

// console is a console that answers so. Its log-in fails with an error, or lasts until its release; or
// it answers without a log-in.
type console struct {
	answer  apply.GameAnswer
	unasked bool
	err     error
	login   error
	logins  chan struct{} // if it is not nil, gets each log-in, which lasts until release
	release chan struct{}

	sent, closed atomic.Int64
}

func (c *console) Login(
	context.Context, *apply.Command,
) (apply.Session, *apply.GameAnswer, error) {
	if c.unasked {
		return nil, &c.answer, nil
	}
	if c.logins != nil {
		c.logins <- struct{}{}
		<-c.release
	}
	if c.login != nil {
		return nil, nil, c.login
	}
	return c, nil, nil
}

func (c *console) Send(context.Context) (apply.GameAnswer, error) {
	c.sent.Add(1)
	return c.answer, c.err
}

func (c *console) Close() { c.closed.Add(1) }

func TestDispatcher_ConsoleEnds(t *testing.T) {
	t.Parallel()
	absent := []runevents.AlertCode{runevents.PluginAbsent}
	for _, row := range []struct {
		name    string
		console apply.Console
		reason  handoff.ReasonCode
		alerts  []runevents.AlertCode
	}{
		{"applied", &console{answer: apply.GameAnswer{Status: apply.Applied}},
			handoff.ReasonExecuted, nil},
		{"no console", nil, apply.ReasonGameUnavailable, nil},
		{"out of reach", &console{login: apply.ErrUnavailable}, apply.ReasonGameUnavailable, absent},
		{"cut off before it was sent", &console{err: apply.ErrUnavailable},
			apply.ReasonGameUnavailable, absent},
		{"no answer", &console{err: errors.New("lost")}, apply.ReasonRCONInDoubt,
			[]runevents.AlertCode{runevents.ApplyInDoubt}},
	} {
		t.Run(row.name, func(t *testing.T) {
			t.Parallel()
			w := work(t, func(c *game.Config) { c.RCON, c.Retry.Absence = row.console, apply.AbsenceFail },
				func(p *apply.Pending) { p.Binding = apply.RCON })
			a := w.await(w.execute())
			require.NoError(t, a.err)
			require.Equal(t, row.reason, a.Result.ReasonCode)
			require.Equal(t, row.alerts, w.codes())
		})
	}
}

// A command that is refused without a log-in does not show that the console is there again.
func TestDispatcher_ConsoleUnasked(t *testing.T) {
	t.Parallel()
	w := work(t, func(c *game.Config) {
		c.RCON = &console{answer: apply.GameAnswer{Status: apply.Refused}, unasked: true}
	}, func(p *apply.Pending) { p.Binding = apply.RCON })
	w.Absences.NoteAbsent(t.Context(), alerts.About{TownID: "town-threatened"}, 1, true)
	require.Equal(t, apply.ReasonPluginRejected, w.await(w.execute()).Result.ReasonCode)
	require.Equal(t, []runevents.AlertCode{runevents.PluginAbsent}, w.codes())
	require.NotZero(t, w.Absences.StartOf("town-threatened"))
}

// A dispatcher that stops leaves its commands pending, and accepts no others.
func TestDispatcher_Stop(t *testing.T) {
	t.Parallel()
	w := work(t, nil)
	asked := make(chan struct{}, 8)
	_, err := logtest.JetStream(w.log).Conn().Subscribe(wire.ApplySubject("main", "*"),
		func(*nats.Msg) { asked <- struct{}{} })
	require.NoError(t, err)
	client := w.execute()
	<-asked
	h := machinetest.Advance(t, "wall", machinetest.WallExists)
	require.ErrorIs(t, w.CheckKey("town-threatened", h.IdempotencyKey, h.HandoffID), waiting.ErrInProgress)
	require.Equal(t, waiting.KeyInUse(h.HandoffID), w.CheckKey("town-threatened", h.IdempotencyKey, "another"))
	require.NoError(t, w.CheckKey("town-threatened", "another key", h.HandoffID))
	require.Equal(t, 1, w.Count())
	w.halt()
	require.ErrorIs(t, w.await(client).err, waiting.ErrInProgress)
	require.NotNil(t, w.town().Pending)
	require.ErrorIs(t, w.await(w.execute()).err, waiting.ErrInProgress)
}

// A run is cancelled by force whatever a game has, otherwise only if none can have it.
func TestDispatcher_Cancel(t *testing.T) {
	t.Parallel()
	for _, row := range []struct {
		name    string
		force   bool
		run     string // of another one, if any
		refused wire.Code
	}{
		{"nothing was sent", false, "", ""},
		{"by force", true, "", ""},
		{"another run", true, "other", wire.CodeRunNotWaiting},
	} {
		t.Run(row.name, func(t *testing.T) {
			t.Parallel()
			w := work(t, func(c *game.Config) {
				// It drains meanwhile: a command that outlasts that has an alert.
				c.WorldPause.Set(waiting.Pause{Seq: 1, By: &messages.PausedBy{SignalID: "p", At: time.Now(),
					DrainTimeoutMs: time.Hour.Milliseconds()}})
			})
			runID, client := w.current.Pending.Run.RunID, w.execute()
			s := w.cancellation()
			s.Force = row.force
			if row.run != "" {
				s.RunID = row.run
			}
			err := w.cancel(&s)
			if row.refused != "" {
				var refused *machine.RefusedError
				require.ErrorAs(t, err, &refused)
				require.Equal(t, row.refused, refused.Code)
				require.NotNil(t, w.town().Pending)
				require.Equal(t, w.current.Seq, w.town().Seq, "no server is asked")
				return
			}
			require.NoError(t, err)
			h := machinetest.Advance(t, "wall", machinetest.WallExists)
			require.NoError(t, w.CheckKey("town-threatened", h.IdempotencyKey, h.HandoffID), "it is not being applied any more")
			var cancelled *waiting.Error
			require.ErrorAs(t, w.await(client).err, &cancelled)
			require.Equal(t, runID, cancelled.RunID)
			require.Contains(t, cancelled.Next, "not asked for any more")
			require.Nil(t, w.town().Pending)
			require.Equal(t, w.current.State.Hash, w.town().State.Hash)
			require.Equal(t, (&stepper.Stepper{}).Results(), w.steps.Results())
			require.Len(t, w.alerts, map[bool]int{true: 1}[row.force])
		})
	}
}

// A cancellation waits for the execution that starts in the town's turn, and is refused if the command
// is concluded in that turn.
func TestDispatcher_CancelBeforeStart(t *testing.T) {
	t.Parallel()
	for _, started := range []bool{true, false} {
		t.Run(strconv.FormatBool(started), func(t *testing.T) {
			t.Parallel()
			w := work(t, func(c *game.Config) {
				c.WorldPause.Set(waiting.Pause{Seq: 1, By: &messages.PausedBy{SignalID: "p"}})
			})
			begun, goOn, ensured := make(chan struct{}), make(chan struct{}), make(chan client, 1)
			require.NoError(t, w.config.Queue.Submit("town-threatened", func(ctx context.Context) {
				close(begun)
				<-goOn
				if started {
					ensured <- w.execute()
					return
				}
				after := w.town()
				after.Pending = nil
				rec := machine.Record{Kind: machine.KindPut, TownID: "town-threatened"}
				assert.NoError(t, w.log.CommitTown(ctx, &rec, &after, after.Seq))
			}))
			<-begun
			s := w.cancellation()
			cancelled := make(chan error)
			go func() { cancelled <- w.cancel(&s) }()
			select {
			case err := <-cancelled:
				require.Fail(t, "the cancellation did not wait", "%v", err)
			case <-time.After(100 * time.Millisecond):
			}
			close(goOn)
			if started {
				require.NoError(t, <-cancelled)
				require.ErrorIs(t, w.await(<-ensured).err, machine.ErrRunCancelled)
				return
			}
			var refused *machine.RefusedError
			require.ErrorAs(t, <-cancelled, &refused)
			require.Equal(t, wire.CodeRunNotWaiting, refused.Code)
		})
	}
}

// refusing is a store that refuses appends to a town as long as it is broken.
type refusing struct {
	commitlog.Store
	broken atomic.Bool
}

func (r *refusing) Publish(ctx context.Context, msg *nats.Msg) (*jetstream.PubAck, error) {
	if r.broken.Load() && msg.Subject == layout.LogSubject("main", "town-threatened") {
		return nil, errors.New("no answer")
	}
	return r.Store.Publish(ctx, msg)
}

// An outcome that cannot be stored is stored when the log answers again.
func TestDispatcher_OutcomeIsRepeated(t *testing.T) {
	t.Parallel()
	said := &natstest.Buffer{}
	w := work(t, func(c *game.Config) {
		c.Timeout, c.Logger = 200*time.Millisecond, slog.New(slog.NewTextHandler(said, nil))
	})
	w.plugin(apply.Done)
	store := &refusing{Store: w.log.Store}
	store.broken.Store(true)
	w.log.Store = store
	client := w.execute()
	require.Eventually(t, func() bool {
		return strings.Contains(said.String(), "the outcome of a command cannot be committed")
	}, 60*time.Second, 10*time.Millisecond)
	store.broken.Store(false)
	require.Equal(t, handoff.ReasonExecuted, w.await(client).Result.ReasonCode)
}

// After cancellations that the log does not confirm, a command is applied only when no record of them
// can be stored any more.
func TestDispatcher_CancelUnconfirmed(t *testing.T) {
	t.Parallel()
	k := &console{answer: apply.GameAnswer{Status: apply.Applied},
		logins: make(chan struct{}, 8), release: make(chan struct{}, 8)}
	w := work(t, func(c *game.Config) { c.RCON = k }, func(p *apply.Pending) { p.Binding = apply.RCON })
	store := &refusing{Store: w.log.Store}
	w.log.Store = store
	client := w.execute()
	<-k.logins
	store.broken.Store(true)
	for range 2 {
		s := w.cancellation()
		require.ErrorIs(t, w.callInTurn(func(ctx context.Context, done func(error)) {
			ctx, cancel := context.WithTimeout(ctx, 300*time.Millisecond)
			defer cancel()
			w.Cancel(ctx, t.Context(), &s, done)
		}), commitlog.ErrLogUnavailable)
	}
	k.release <- struct{}{}
	time.Sleep(600 * time.Millisecond)
	require.Empty(t, k.logins, "the console is not asked")
	store.broken.Store(false)
	<-k.logins
	k.release <- struct{}{}
	a := w.await(client)
	require.NoError(t, a.err)
	require.Equal(t, handoff.ReasonExecuted, a.Result.ReasonCode)
}

// If a result comes first, a cancellation by force is refused. Its alert, which was stored before,
// does not say that the run was cancelled.
func TestDispatcher_ForceComesTooLate(t *testing.T) {
	t.Parallel()
	w := work(t, nil)
	w.meanwhile = func() {
		after := w.town()
		after.Pending = nil
		rec := machine.Record{Kind: machine.KindPut, TownID: "town-threatened"}
		require.NoError(t, w.log.CommitTown(t.Context(), &rec, &after, w.town().Seq))
	}
	s := w.cancellation()
	s.ActorID, s.Force = "ada", true
	var refused *machine.RefusedError
	require.ErrorAs(t, w.cancel(&s), &refused)
	require.Equal(t, wire.CodeRunNotWaiting, refused.Code)
	require.Len(t, w.raised, 1)
	require.Contains(t, w.raised[0].Message, "ada asked to cancel run "+s.RunID)
}

// If another server has ended the run, the client gets its own run's end. If the log does not keep
// the end, the client has to send the handoff again.
func TestDispatcher_EndedElsewhere(t *testing.T) {
	t.Parallel()
	for name, want := range map[string]error{
		"it was cancelled": machine.ErrRunCancelled, "its end is lost": waiting.ErrInProgress,
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			w := work(t, nil)
			w.plugin(func(c *apply.Command) apply.GameAnswer {
				after := w.town() // another server was faster
				rec := machine.Record{Kind: machine.KindPut, TownID: "town-threatened"}
				if want == machine.ErrRunCancelled {
					rec.Kind, rec.Run = machine.KindCancelled, w.cancelled()
				}
				after.Pending = nil
				assert.NoError(t, w.log.CommitTown(context.Background(), &rec, &after, after.Seq))
				return apply.Refuse(c, "NO", "no", false)
			})
			runID := w.current.Pending.Run.RunID
			a := w.await(w.execute())
			require.ErrorIs(t, a.err, want)
			require.ErrorContains(t, a.err, runID)
			require.Equal(t, want == machine.ErrRunCancelled,
				errors.Is(a.err, machine.ErrRunCancelled))
			require.Nil(t, w.town().Pending)
		})
	}
}

// cancelled returns the events by which the run of the command is cancelled.
func (w *working) cancelled() *runlog.Run {
	p := logtest.NewProducer(w.current.Pending.Run)
	p.ResumeAt(runevents.RunStatusRunning)
	p.StartBatch(w.current.Pending.Emitted + 1)
	assert.NoError(w.t, p.Emit(runlog.Emission{Type: runevents.RunCancelled}))
	return p.Run()
}

// A run can be cancelled until a byte of its command goes to the console: while it logs in, nothing
// is known to the game, and nothing is sent afterwards.
func TestDispatcher_CancelDuringLogin(t *testing.T) {
	t.Parallel()
	k := &console{answer: apply.GameAnswer{Status: apply.Applied},
		logins: make(chan struct{}, 8), release: make(chan struct{})}
	w := work(t, func(c *game.Config) { c.RCON = k },
		func(p *apply.Pending) { p.Binding = apply.RCON })
	client := w.execute()
	<-k.logins
	s := w.cancellation()
	require.NoError(t, w.cancel(&s))
	require.ErrorIs(t, w.await(client).err, machine.ErrRunCancelled)
	require.Nil(t, w.town().Pending)
	close(k.release)
	w.halt()
	require.Eventually(t, func() bool { return k.closed.Load() == 1 }, 30*time.Second, time.Millisecond)
	require.Zero(t, k.sent.Load())
	require.Empty(t, w.alerts)
	require.Equal(t, w.current.State.Hash, w.town().State.Hash)
}

// A reply is handled although the record that outruns a cancellation finds no room: the end of the command may find it.
func TestDispatcher_ReplyBehindCancel(t *testing.T) {
	t.Parallel()
	var attempt, requests, refused atomic.Int64
	var failed atomic.Uint32
	var x atomic.Pointer[game.Execution]
	var isFull atomic.Bool
	w := work(t, func(c *game.Config) {
		c.Retry.Resend = 100 * time.Millisecond
		c.Router = router(func(asked *game.Execution, number int64) {
			x.Store(asked)
			attempt.Store(number)
			requests.Add(1)
		})
	})
	w.log.FixedHistory = 100
	w.steps.RequiredHistory = func(context.Context, string, uint64) (records.RequiredHistory, error) {
		return records.RequiredHistory{SinceFailed: failed.Load(), FailedHandoffs: failed.Load()}, nil
	}
	w.steps.OnHistoryFull = func(string, records.RequiredHistory) { refused.Add(1) }
	w.log.CheckStorage = func() error {
		if isFull.Load() {
			return errors.New("full")
		}
		return nil
	}
	w.execute()
	require.Eventually(t, func() bool { return requests.Load() > 1 }, 10*time.Second, time.Millisecond) // it may have arrived
	isFull.Store(true)
	require.ErrorIs(t, w.cancel(new(w.cancellation())), commitlog.ErrStorageFull)
	failed.Store(99)
	isFull.Store(false)
	require.Eventually(t, func() bool { return refused.Load() > 0 }, 10*time.Second, time.Millisecond)
	reply, err := (&apply.GameAnswer{SchemaVersion: apply.AnswerVersion, ApplyID: x.Load().Handoff.HandoffID,
		Status: apply.Applied}).MarshalWire()
	require.NoError(t, err)
	x.Load().Deliver(game.Reply{Attempt: attempt.Load(), Msg: &nats.Msg{Data: reply}})
	require.Eventually(t, func() bool { return w.town().Pending == nil }, 10*time.Second, 10*time.Millisecond)
}

// A command whose binding this program does not know, as one of a newer server, is not sent to another game.
func TestDispatcher_UnknownBinding(t *testing.T) {
	t.Parallel()
	w := work(t, func(*game.Config) {}, func(p *apply.Pending) { p.Binding = "newer" })
	require.ErrorContains(t, w.Reconcile(t.Context(), w.current.State.Snapshot.TownID, w.current), `"newer"`)
	require.Zero(t, w.Count())
}
