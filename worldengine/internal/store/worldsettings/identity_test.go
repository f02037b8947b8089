package worldsettings_test

import (
	"log/slog"
	"strconv"
	"sync"
	"testing"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
	"github.com/stretchr/testify/require"

	"worldengine/worldengine/internal/kit/layout"
	"worldengine/worldengine/internal/store/commitlog"
	"worldengine/worldengine/internal/store/commitlog/logtest"
	"worldengine/worldengine/internal/store/worldsettings"
	"worldengine/worldengine/internal/testkit/natstest"
	"worldengine/worldengine/wire"
)

// openWorld makes or opens the log of the world main, as an engine does.
func openWorld(t *testing.T, js jetstream.JetStream) (jetstream.Stream, commitlog.Store) {
	t.Helper()
	plan, err := worldsettings.PlanToServe(t.Context(), js, "main", worldsettings.Settings{}, false)
	require.NoError(t, err)
	stream, err := worldsettings.OpenLog(t.Context(), js, "main", plan, 1, slog.New(slog.DiscardHandler))
	require.NoError(t, err)
	return stream, commitlog.NewStore(js, stream, true)
}

func guarded(msg *nats.Msg, guard uint64) *nats.Msg {
	msg.Header.Set(jetstream.ExpectedLastSubjSeqHeader, strconv.FormatUint(guard, 10))
	return msg
}

// An append that a writer sends after its world was removed and made anew is refused, whatever guard it
// has: the new log has a town, and no town, as the old one had.
func TestIdentity_AppendInFlight(t *testing.T) {
	t.Parallel()
	js, err := jetstream.New(natstest.Connect(t))
	require.NoError(t, err)
	stream, old := openWorld(t, js)
	ack, err := old.Publish(t.Context(), guarded(logtest.Put(t, 1), 0))
	require.NoError(t, err)
	require.NoError(t, js.DeleteStream(t.Context(), stream.CachedInfo().Config.Name))

	_, store := openWorld(t, js)
	again, err := store.Publish(t.Context(), guarded(logtest.Put(t, 1), 0))
	require.NoError(t, err)
	require.Equal(t, ack.Sequence, again.Sequence)
	var sending sync.WaitGroup
	for i := range 64 { // many, so that some go in batches
		sending.Go(func() {
			for _, msg := range []*nats.Msg{
				guarded(logtest.Put(t, 2), ack.Sequence), guarded(logtest.PutTown(t, "other"+strconv.Itoa(i), 1), 0),
				logtest.PutTown(t, "unguarded", 1),
			} {
				_, err := old.Publish(t.Context(), msg)
				require.ErrorIs(t, err, jetstream.ErrNoStreamResponse)
			}
		})
	}
	sending.Wait()
	_, err = js.PublishMsg(t.Context(), logtest.Put(t, 2))
	require.ErrorIs(t, err, jetstream.ErrNoStreamResponse, "an append of a program that knows no identities")
	end, err := store.End(t.Context())
	require.NoError(t, err)
	require.Equal(t, again.Sequence, end)
	last, err := store.Last(t.Context(), layout.LogSubject("main", wire.TownToken("t")))
	require.NoError(t, err)
	require.Equal(t, end, last.Sequence)
}

// A log keeps its identity as long as it exists, and a log of an earlier program has none.
func TestIdentity_Kept(t *testing.T) {
	t.Parallel()
	js, err := jetstream.New(natstest.Connect(t))
	require.NoError(t, err)
	made, _ := openWorld(t, js)
	opened, _ := openWorld(t, js)
	require.NotEmpty(t, commitlog.Identity(made.CachedInfo().Config))
	require.Equal(t, made.CachedInfo().Config, opened.CachedInfo().Config)
	_, err = worldsettings.Change(t.Context(), js, "main", worldsettings.Settings{HistoryPerTown: 20_000}, false)
	require.NoError(t, err)
	opened, _ = openWorld(t, js)
	require.Equal(t, commitlog.Identity(made.CachedInfo().Config), commitlog.Identity(opened.CachedInfo().Config))

	// An earlier program becomes the writer: it accepts appends on the subjects of the log.
	earlier := worldsettings.StreamConfig("main", worldsettings.Settings{HistoryPerTown: 20_000}, 1)
	_, err = js.UpdateStream(t.Context(), earlier)
	require.NoError(t, err)
	_, err = js.PublishMsg(t.Context(), guarded(logtest.Put(t, 1), 0))
	require.NoError(t, err)
	opened, store := openWorld(t, js)
	require.Empty(t, commitlog.Identity(opened.CachedInfo().Config))
	_, err = store.Publish(t.Context(), logtest.Put(t, 2))
	require.NoError(t, err)
}

// A plan that was made before its world was removed changes nothing of the world that was made anew: else
// appends of the removed world's writer would reach it.
func TestIdentity_StalePlan(t *testing.T) {
	t.Parallel()
	earlier := worldsettings.StreamConfig("main", worldsettings.Default(), 1)
	earlier.Subjects = earlier.Subjects[:len(earlier.Subjects)-1] // without the subject of settings
	for name, first := range map[string]func(t *testing.T, js jetstream.JetStream){
		"of this program": func(t *testing.T, js jetstream.JetStream) { openWorld(t, js) },
		"of an earlier program": func(t *testing.T, js jetstream.JetStream) {
			_, err := js.CreateStream(t.Context(), earlier)
			require.NoError(t, err)
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			js, err := jetstream.New(natstest.Connect(t))
			require.NoError(t, err)
			first(t, js)
			stale, err := worldsettings.MakePlan(t.Context(), js, "main", worldsettings.Settings{})
			require.NoError(t, err)
			log, err := js.Stream(t.Context(), layout.LogStream("main"))
			require.NoError(t, err)
			was, err := commitlog.OpenReader(t.Context(), js, "main")
			require.NoError(t, err)
			stored, err := worldsettings.Read(t.Context(), was)
			require.NoError(t, err)
			open := func() error {
				_, err := worldsettings.OpenLog(t.Context(), js, "main", stale, 1, slog.New(slog.DiscardHandler))
				return err
			}
			require.NoError(t, js.DeleteStream(t.Context(), layout.LogStream("main")))
			require.ErrorIs(t, open(), commitlog.ErrLostRace, "it makes no world with the old identity")
			_, err = js.Stream(t.Context(), layout.LogStream("main"))
			require.ErrorIs(t, err, jetstream.ErrStreamNotFound)
			made, _ := openWorld(t, js)
			require.ErrorIs(t, open(), commitlog.ErrLostRace)
			require.ErrorIs(t, worldsettings.UpdateStream(t.Context(), js, log, stored), commitlog.ErrLostRace)
			now, err := js.Stream(t.Context(), layout.LogStream("main"))
			require.NoError(t, err)
			require.Equal(t, made.CachedInfo().Config, now.CachedInfo().Config)
		})
	}
}
