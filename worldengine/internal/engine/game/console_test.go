package game

import (
	"context"
	"log/slog"
	"testing"
	"testing/synctest"
	"time"

	"github.com/nats-io/nats.go/jetstream"
	"github.com/stretchr/testify/require"

	"worldengine/runevents"
	"worldengine/worldengine/internal/core/apply"
	"worldengine/worldengine/internal/core/machine"
	"worldengine/worldengine/internal/core/town/towntest"
	"worldengine/worldengine/internal/engine/queue"
	"worldengine/worldengine/internal/engine/stepper"
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
type busyConsole struct{ others, own time.Duration }

func (c busyConsole) Apply(
	ctx context.Context, command *apply.Command, begin func() bool,
) (apply.Answer, error) {
	for _, err := range []error{apply.ErrUnavailable, apply.ErrInDoubt} {
		wait := c.others
		if err == apply.ErrInDoubt {
			begin()
			wait = c.own
		}
		select {
		case <-time.After(wait):
		case <-ctx.Done():
			return apply.Answer{}, err
		}
	}
	return apply.Done(command), nil
}

// A command has the whole deadline once it begins, however long the console was busy with others.
func TestWorker_BusyConsole(t *testing.T) {
	t.Parallel()
	log := logtest.New(t)
	pending := &apply.Pending{Via: apply.RCON, Attempt: 1, Handoff: []byte("{}"),
		Expected: []byte("{}"), Run: runevents.Identity{RunID: "r"}}
	entry := machine.Town{State: towntest.Threatened(), Pending: pending}
	require.NoError(t, log.CommitTown(t.Context(),
		&machine.Record{Kind: machine.KindPending, TownID: "town-threatened"}, &entry, 0))
	last, err := log.LastOf(t.Context(), "town-threatened")
	require.NoError(t, err)
	for _, row := range []struct {
		others, own time.Duration
		reason      string
	}{
		{9 * time.Second, 9 * time.Second, ""},
		{9 * time.Second, 11 * time.Second, string(apply.ReasonRCONInDoubt)},
		{11 * time.Second, 0, string(apply.ReasonPluginUnavailable)},
	} {
		synctest.Test(t, func(t *testing.T) {
			log := &records.Log{Log: &commitlog.Log{Store: &oneTown{last: last}}}
			_, raised := opened(apply.AbsentFail)
			w := New(t.Context(), &stepper.Stepper{Log: log, Now: time.Now}, Config{
				Policy:     apply.Policy{Absent: apply.AbsentFail}.WithDefaults(),
				WorldPause: NewWorldPause(log, Pause{}, nil), Alerts: raised,
				Queue: queue.New(t.Context(), queue.Config{}),
				RCON:  busyConsole{row.others, row.own}, Logger: slog.New(slog.DiscardHandler),
			})
			a := inTown("town-threatened", "r")
			a.Pending = pending
			a.knows = true
			ended, err := w.console(t.Context(), a, &apply.Command{})
			require.NoError(t, err)
			if row.reason == "" {
				require.True(t, ended.Applied)
				return
			}
			require.EqualValues(t, row.reason, ended.Failed.Reason)
		})
	}
}
