package emit_test

import (
	"context"
	"errors"
	"testing"

	"github.com/google/uuid"
	"github.com/nats-io/nats.go"
	"github.com/stretchr/testify/require"

	"worldengine/runevents"
	"worldengine/worldengine/emit"
)

// TestAnEventIDIsWrittenDownBeforeTheAppend is section 2.5.1, step 2: when the authority is asked
// for the first time, the durable registry has the eventId already.
func TestAnEventIDIsWrittenDownBeforeTheAppend(t *testing.T) {
	t.Parallel()
	nc, _ := startNATS(t, t.TempDir())
	look := openRegistry(t, nc)
	authority := serveScript(t, nc, func(msg *nats.Msg, w runevents.Write) {
		// Where there is no entry yet, this draws another id, and the two differ.
		id, err := look.ID(context.Background(), w.RunID, w.IdempotencyKey)
		if err != nil || id != w.EventID {
			t.Errorf("the event came with %s when the registry had %s, %v", w.EventID, id, err)
		}
		persist(msg, w)
	})
	e := newEmitter(t, nc, func(c *emit.Config) { c.Registry = openRegistry(t, nc) })
	_, err := e.Emit(t.Context(), runevents.RunStarted, "", 1, nil)
	require.NoError(t, err)
	require.Len(t, authority.writes(), 1)
}

// awayRegistry is a registry that does not answer.
type awayRegistry struct{ emit.EventIDRegistry }

var errAway = errors.New("the registry is away")

func (awayRegistry) ID(context.Context, string, string) (string, error) { return "", errAway }

// TestNothingIsEmittedWithoutItsRegistry: an eventId that cannot be written down is not used.
func TestNothingIsEmittedWithoutItsRegistry(t *testing.T) {
	t.Parallel()
	nc, _ := startNATS(t, t.TempDir())
	authority := serveScript(t, nc)
	e := newEmitter(t, nc, func(c *emit.Config) { c.Registry = awayRegistry{} })
	_, err := e.Emit(t.Context(), runevents.RunStarted, "", 1, nil)
	require.ErrorIs(t, err, errAway)
	require.Empty(t, authority.writes())
}

// TestEventIDsAreDrawnNotDerived: two registries that know nothing of each other have different ids
// for the same event, both of version 4.
func TestEventIDsAreDrawnNotDerived(t *testing.T) {
	t.Parallel()
	nc, _ := startNATS(t, t.TempDir())
	ids := map[string]bool{}
	for _, registry := range []emit.EventIDRegistry{
		emit.NewMemoryRegistry(), emit.NewMemoryRegistry(), openRegistry(t, nc),
	} {
		text, err := registry.ID(t.Context(), identity.RunID, keyOf(1))
		require.NoError(t, err)
		id, err := uuid.Parse(text)
		require.NoError(t, err)
		require.Equal(t, uuid.Version(4), id.Version())
		require.Equal(t, uuid.RFC4122, id.Variant())
		ids[text] = true
	}
	require.Len(t, ids, 3)
}
