package history_test

import (
	"context"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"worldengine/worldengine/commitlog"
	"worldengine/worldengine/commitlog/logtest"
	"worldengine/worldengine/history"
	"worldengine/worldengine/messages"
	"worldengine/worldengine/town"
	"worldengine/worldengine/town/towntest"
	"worldengine/worldengine/wire"
)

// change has some members of a change.
type change struct {
	town     string
	revision uint64
	cause    commitlog.Kind
	actor    string
}

func (w *world) newest(window history.Window, limit int) (all []change) {
	w.t.Helper()
	require.NoError(w.t, w.Newest(w.t.Context(), window,
		func(townID string, r messages.Revision) bool {
			all = append(all, change{townID, r.Revision, commitlog.Kind(r.Cause), r.ActorID})
			return len(all) < limit
		}))
	return all
}

// The newest changes are the changes of all towns, and no other records of the log.
func TestNewest_Windows(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	require.Empty(t, w.newest(history.Window{}, 10), "of an empty log")
	put := w.put(towntest.Threatened())
	w.judge("rejected")
	world := &commitlog.Record{Kind: commitlog.KindControl}
	msg, err := commitlog.Encode(world, wire.ControlSubject("main"), nil)
	require.NoError(t, err)
	_, err = w.Log.Commit(t.Context(), msg, 0)
	require.NoError(t, err)
	other := w.put(town.NewState(&town.Snapshot{SchemaVersion: town.SchemaVersion, TownID: "u"}))
	run := w.accept("executed")
	w.conclude(commitlog.KindHandoff, "executed", run)
	w.damage()

	all := []change{
		{townID, other + 2, "handoff", "mayor-1"}, {townID, other + 1, "pending", "mayor-1"},
		{"u", other, "put", "ada"}, {townID, put, "put", "ada"},
	}
	for _, row := range []struct {
		name   string
		window history.Window
		limit  int
		want   []change
	}{
		{"all", history.Window{}, 10, all},
		{"before one", history.Window{Before: other}, 10, all[3:]},
		{"before what is to come", history.Window{Before: 1 << 50}, 10, all},
		{"after one", history.Window{After: other}, 10, all[:2]},
		{"after all", history.Window{After: 1 << 50}, 10, nil},
		{"between", history.Window{After: put, Before: other + 2}, 10, all[1:3]},
		{"nothing between", history.Window{After: other, Before: other + 1}, 10, nil},
		{"the first two", history.Window{}, 2, all[:2]},
	} {
		require.Equal(t, row.want, w.newest(row.window, row.limit), row.name)
	}
}

// Newest looks at the last NewestWindow messages.
func TestNewest_Bound(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	first := w.put(towntest.Threatened())
	js := logtest.JetStream(w.Log)
	subject := wire.RefusedSubject("main", "t")
	for range history.NewestWindow - 1 {
		_, err := js.PublishAsync(subject, nil)
		require.NoError(t, err)
	}
	select {
	case <-js.PublishAsyncComplete():
	case <-time.After(30 * time.Second):
		t.Fatal("NATS does not answer")
	}
	require.Equal(t, []change{{townID, first, "put", "ada"}}, w.newest(history.Window{}, 10))
	_, err := js.Publish(t.Context(), subject, nil)
	require.NoError(t, err)
	require.Empty(t, w.newest(history.Window{}, 10), "it is too long ago")
}

// A caller that waits no longer gets an error, so that it does not take the changes for all.
func TestNewest_Cancelled(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.put(towntest.Threatened())
	w.put(towntest.Threatened(towntest.Calmer))
	ctx, cancel := context.WithCancel(t.Context())
	err := w.Newest(ctx, history.Window{}, func(string, messages.Revision) bool {
		cancel()
		return true
	})
	require.ErrorIs(t, err, context.Canceled)
}
