package game

import (
	"context"
	"errors"
	"log/slog"
	"testing"

	"github.com/nats-io/nats.go/jetstream"
	"github.com/stretchr/testify/require"

	"worldengine/worldengine/internal/engine/stepper"
	"worldengine/worldengine/internal/store/commitlog"
	"worldengine/worldengine/internal/store/commitlog/logtest"
	"worldengine/worldengine/internal/testkit/natstest"
)

// unreadStore is a store whose towns are unreadable; the third read ends the test.
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

// A command that waits because its town is unreadable is logged.
func TestWorker_UnreadableTown(t *testing.T) {
	t.Parallel()
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	said, log := &natstest.Buffer{}, logtest.New(t)
	store := &unreadStore{log.Store, 0, cancel}
	log.Store = store
	w := New(t.Context(), &stepper.Stepper{Log: log}, Config{
		WorldPause: NewWorldPause(log, Pause{}, nil),
		Logger:     slog.New(slog.NewTextHandler(said, nil)),
	})
	w.waitUnpaused(ctx, inTown("t", "r"))
	require.Equal(t, 3, store.tries)
	require.Contains(t, said.String(), "cannot be read")
}
