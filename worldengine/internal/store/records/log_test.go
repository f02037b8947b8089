package records_test

import (
	"context"
	"testing"

	"github.com/nats-io/nats.go/jetstream"
	"github.com/stretchr/testify/require"

	"worldengine/worldengine/internal/core/machine"
	"worldengine/worldengine/internal/core/town/towntest"
	"worldengine/worldengine/internal/store/commitlog"
	"worldengine/worldengine/internal/store/commitlog/logtest"
)

// unreadable is a store whose last messages were changed on the disk.
type unreadable struct{ commitlog.Store }

func (unreadable) Last(context.Context, string) (*jetstream.RawStreamMsg, error) {
	return nil, commitlog.ErrUnreadable
}

// A commit that finds its town's last message damaged leads to another load of the town, which says so.
func TestLog_CommitToADamagedTown(t *testing.T) {
	t.Parallel()
	log := logtest.New(t)
	log.Store = unreadable{log.Store}
	after := machine.Town{State: towntest.Threatened()}
	rec := machine.Record{Kind: machine.KindPut, TownID: after.State.Snapshot.TownID}
	require.ErrorIs(t, log.CommitTown(t.Context(), &rec, &after, 7), commitlog.ErrLostRace)
}
