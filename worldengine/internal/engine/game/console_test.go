package game

import (
	"context"
	"log/slog"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/uuid"
	"github.com/nats-io/nats.go/jetstream"
	"github.com/stretchr/testify/require"

	"worldengine/runevents"
	"worldengine/worldengine/internal/core/apply"
	"worldengine/worldengine/internal/core/machine"
	"worldengine/worldengine/internal/core/town/towntest"
	"worldengine/worldengine/internal/engine/queue"
	"worldengine/worldengine/internal/engine/stepper"
	"worldengine/worldengine/internal/engine/waiting"
	"worldengine/worldengine/internal/kit/backoff"
	"worldengine/worldengine/internal/store/alerts"
	"worldengine/worldengine/internal/store/commitlog"
	"worldengine/worldengine/internal/store/commitlog/logtest"
	"worldengine/worldengine/internal/store/records"
)

// oneTown is a store with the last message of one town.
type oneTown struct {
	commitlog.Store
	last *jetstream.RawStreamMsg
}

func (s *oneTown) Last(context.Context, string) (*jetstream.RawStreamMsg, error) {
	return s.last, nil
}

// busyConsole first works for other towns, and then for the command.
type busyConsole struct {
	otherTimeout, ownTimeout time.Duration
	late                     bool // the login does not end with its context
}

func (c busyConsole) Login(
	ctx context.Context, _ *apply.Command,
) (apply.Session, *apply.GameAnswer, error) {
	if backoff.Sleep(ctx, c.otherTimeout) != nil && !c.late {
		return nil, nil, apply.ErrUnavailable
	}
	return c, nil, nil
}

func (c busyConsole) Send(ctx context.Context) (apply.GameAnswer, error) {
	if backoff.Sleep(ctx, c.ownTimeout) != nil {
		return apply.GameAnswer{}, apply.ErrInDoubt
	}
	return apply.Done(&apply.Command{}), nil
}

func (busyConsole) Close() {}

// results gets the ends of attempts.
type results chan apply.AttemptResult

func (e results) Attempt(_ apply.Binding, ended apply.AttemptResult, _ time.Duration) { e <- ended }

// A command has the whole deadline once it begins, however long the console was busy with others.
func TestDispatcher_BusyConsole(t *testing.T) {
	t.Parallel()
	log := logtest.New(t)
	pending := &apply.Pending{Binding: apply.RCON, Attempt: 1, Handoff: []byte("{}"),
		Expected: []byte("{}"), Run: runevents.Identity{RunID: "r"}}
	entry := machine.Town{State: towntest.Threatened(), Pending: pending}
	require.NoError(t, log.CommitTown(t.Context(),
		&machine.Record{Kind: machine.KindPending, TownID: "town-threatened"}, &entry, 0))
	last, err := log.LastMessage(t.Context(), "town-threatened")
	require.NoError(t, err)
	for _, row := range []struct {
		otherTimeout, ownTimeout time.Duration
		late                     bool
		reason                   string
	}{
		{9 * time.Second, 9 * time.Second, false, ""},
		{9 * time.Second, 11 * time.Second, false, string(apply.ReasonRCONInDoubt)},
		{11 * time.Second, 0, false, string(apply.ReasonGameUnavailable)},
		{11 * time.Second, 0, true, string(apply.ReasonGameUnavailable)},
	} {
		synctest.Test(t, func(t *testing.T) {
			log, logger := &records.Log{Log: &commitlog.Log{Store: &oneTown{last: last}}}, slog.New(slog.DiscardHandler)
			_, raised := opened(apply.AbsenceFail)
			attempts, turns := make(results, 1), queue.New(t.Context(), queue.Config{Workers: 1, Logger: logger})
			defer func() { require.NoError(t, turns.Drain(t.Context())) }()
			d := New(t.Context(), &stepper.Stepper{
				Log: log, TownCache: records.NewTownCache(log), Now: time.Now, NewID: uuid.NewString,
				HasLease: func() bool { return true },
			}, Config{
				Retry:      apply.RetryPolicy{Absence: apply.AbsenceFail}.WithDefaults(),
				WorldPause: waiting.NewWorldPause(log, nil), Alerts: raised,
				Queue: turns, Router: newInbox("", raised), Timeout: time.Minute, Metrics: attempts,
				RCON: busyConsole{row.otherTimeout, row.ownTimeout, row.late}, Logger: logger,
			})
			x := emptyExecution(d, alerts.About{TownID: "town-threatened", RunID: "r"}, apply.RCON)
			x.Pending, x.phase = pending, asking
			x.game.start(new(apply.Command), time.Now())
			x.paused = new(bool)
			require.True(t, d.start(x))
			ended := <-attempts
			d.stop()
			if row.reason == "" {
				require.True(t, ended.Applied)
				return
			}
			require.EqualValues(t, row.reason, ended.Failure.Reason)
		})
	}
}
