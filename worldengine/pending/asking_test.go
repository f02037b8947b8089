package pending

import (
	"context"
	"errors"
	"log/slog"
	"strings"
	"testing"

	"github.com/nats-io/nats.go/jetstream"
	"github.com/stretchr/testify/require"

	"worldengine/worldengine/apply"
	"worldengine/worldengine/commitlog"
	"worldengine/worldengine/commitlog/logtest"
	"worldengine/worldengine/natstest"
	"worldengine/worldengine/signals"
)

// unreadStore is a store from which no town can be read; the third to try ends the test.
type unreadStore struct {
	commitlog.Store
	tries int
	end   func()
}

func (s *unreadStore) Last(context.Context, string) (*jetstream.RawStreamMsg, error) {
	if s.tries++; s.tries == 3 {
		s.end()
	}
	return nil, errors.New("no answer")
}

// A command that waits because its town cannot be read says so in the server's log, and not each
// time.
func TestACommandWhoseTownCannotBeReadWaits(t *testing.T) {
	t.Parallel()
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	said, log := &natstest.Buffer{}, logtest.New(t)
	store := &unreadStore{log.Store, 0, cancel}
	log.Store = store
	w := New(Config{
		Log: log, WorldPause: signals.NewWorldPause(log, signals.Pause{}, func() {}),
		Logger: slog.New(slog.NewTextHandler(said, nil)),
	})
	w.waitUnpaused(ctx, &application{town: "t", runID: "r",
		replies: apply.NewMailbox(apply.Identity{})})
	require.Equal(t, 3, store.tries)
	require.Equal(t, 1, strings.Count(said.String(), "cannot be read"), said.String())
}

// An attempt that reached nobody leaves the command in doubt if an earlier request may have arrived.
func TestKnown(t *testing.T) {
	t.Parallel()
	a := &application{Decoded: apply.Decoded{Pending: &apply.Pending{Via: apply.Plugin}}}
	unreached := apply.Result{Failed: apply.Silence(false, nil)}
	require.Equal(t, unreached, known(a, unreached))
	doubt := apply.Result{Failed: apply.Silence(true, nil), Reached: true}
	a.Pending.Reached = true
	require.Equal(t, doubt, known(a, unreached))
	a.Pending.Reached = false
	a.gate.Reached()
	require.Equal(t, doubt, known(a, unreached))
	executed := apply.Result{Applied: true}
	require.Equal(t, executed, known(a, executed))
	a.Pending.Via = apply.RCON
	require.Equal(t, unreached, known(a, unreached))
}
