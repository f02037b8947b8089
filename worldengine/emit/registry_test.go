package emit_test

import (
	"context"
	"sync"
	"testing"
	"time"

	natsserver "github.com/nats-io/nats-server/v2/server"
	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
	"github.com/stretchr/testify/require"

	"worldengine/worldengine/emit"
	"worldengine/worldengine/natstest"
	"worldengine/worldengine/wire"
)

// startNATS starts a real NATS over a directory, until stop or the end of the test.
func startNATS(t testing.TB, dir string) (nc *nats.Conn, stop func()) {
	t.Helper()
	ns := natstest.Start(t, &natsserver.Options{JetStream: true, StoreDir: dir})
	nc, err := nats.Connect(ns.ClientURL())
	require.NoError(t, err)
	stop = func() {
		nc.Close()
		natstest.Stop(ns)
	}
	t.Cleanup(stop)
	return nc, stop
}

func openRegistry(t testing.TB, nc *nats.Conn) *emit.KVRegistry {
	t.Helper()
	js, err := jetstream.New(nc)
	require.NoError(t, err)
	r, err := emit.OpenRegistry(t.Context(), js, "main", time.Hour, 1)
	require.NoError(t, err)
	return r
}

// Both registries draw one UUID v4 for each (runId, idempotencyKey), however often and by whom it
// is asked at once, and keep what they adopt.
func TestRegistries(t *testing.T) {
	t.Parallel()
	nc, _ := startNATS(t, t.TempDir())
	inMemory := emit.NewMemoryRegistry()
	for name, open := range map[string]func() emit.EventIDRegistry{
		"memory":    func() emit.EventIDRegistry { return inMemory },
		"key-value": func() emit.EventIDRegistry { return openRegistry(t, nc) },
	} {
		ids := sync.Map{}
		var group sync.WaitGroup
		for range 8 {
			r := open() // a producer of its own, where the registry is durable
			group.Go(func() {
				for attempt := range int64(20) {
					id, err := r.ID(t.Context(), identity.RunID, keyOf(attempt+1))
					if err != nil {
						t.Error(name, err)
						return
					}
					if first, _ := ids.LoadOrStore(attempt, id); first != id {
						t.Errorf("%s: %s and %s", name, first, id)
					}
				}
			})
		}
		group.Wait()
		distinct := map[any]bool{}
		ids.Range(func(_, id any) bool {
			w := newWrite(t, "Told", "a", 1)
			w.EventID = id.(string)
			require.NoError(t, w.Validate(), "a UUID v4")
			distinct[id] = true
			return true
		})
		require.Len(t, distinct, 20)
		other, err := open().ID(t.Context(), "another-run", keyOf(1))
		require.NoError(t, err)
		require.False(t, distinct[other])

		const adopted = "9b2f6a1e-7c4d-4e0b-8a53-1f6f0c9d2e77"
		require.NoError(t, open().Adopt(t.Context(), identity.RunID, keyOf(1), adopted))
		require.NoError(t, open().Adopt(t.Context(), identity.RunID, keyOf(99), adopted),
			"never drawn here")
		for _, attempt := range []int64{1, 99} {
			id, err := open().ID(t.Context(), identity.RunID, keyOf(attempt))
			require.NoError(t, err)
			require.Equal(t, adopted, id)
		}
	}
}

// The durable registry has the same ids after its producer and its NATS were started again.
func TestRegistrySurvivesRestart(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	nc, stop := startNATS(t, dir)
	before := map[int64]string{}
	for attempt := range int64(5) {
		id, err := openRegistry(t, nc).ID(t.Context(), identity.RunID, keyOf(attempt+1))
		require.NoError(t, err)
		before[attempt] = id
	}
	stop()
	nc, _ = startNATS(t, dir)
	for attempt, want := range before {
		id, err := openRegistry(t, nc).ID(t.Context(), identity.RunID, keyOf(attempt+1))
		require.NoError(t, err)
		require.Equal(t, want, id)
	}
}

func TestRegistryRefusesAndFails(t *testing.T) {
	t.Parallel()
	nc, stop := startNATS(t, t.TempDir())
	r := openRegistry(t, nc)
	for _, bad := range [][2]string{{"a.b", keyOf(1)}, {"*", keyOf(1)}, {"", keyOf(1)},
		{"run", "key"}, {"run", ""}} {
		_, err := r.ID(t.Context(), bad[0], bad[1])
		require.ErrorIs(t, err, emit.ErrRegistry)
		require.ErrorIs(t, r.Adopt(t.Context(), bad[0], bad[1], "id"), emit.ErrRegistry)
	}
	js, err := jetstream.New(nc)
	require.NoError(t, err)
	bucket, err := js.KeyValue(t.Context(), wire.RegistryBucket("main"))
	require.NoError(t, err)
	_, err = bucket.Put(t.Context(), "run."+keyOf(1), []byte("damaged"))
	require.NoError(t, err)
	_, err = r.ID(t.Context(), "run", keyOf(1))
	require.ErrorIs(t, err, emit.ErrRegistry)
	require.ErrorContains(t, err, "damaged")

	status, err := bucket.Status(t.Context())
	require.NoError(t, err)
	require.Equal(t, time.Hour, status.TTL())

	stop()
	ctx, cancel := context.WithTimeout(t.Context(), 100*time.Millisecond)
	defer cancel()
	_, err = r.ID(ctx, "run", keyOf(2))
	require.ErrorIs(t, err, emit.ErrRegistry)
	require.ErrorIs(t, r.Adopt(ctx, "run", keyOf(2), "id"), emit.ErrRegistry)
	_, err = emit.OpenRegistry(ctx, js, "main", 0, 1)
	require.ErrorIs(t, err, emit.ErrRegistry)
	require.Equal(t, "WORLD_main_EVENTIDS", wire.RegistryBucket("main"))
}
