package worldengine

import (
	"log/slog"
	"strings"
	"testing"
	"time"

	"github.com/go-json-experiment/json"
	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
	"github.com/stretchr/testify/require"

	"worldengine/runevents"
	"worldengine/worldengine/alerts/alertstest"
	"worldengine/worldengine/commitlog"
	"worldengine/worldengine/commitlog/logtest"
	"worldengine/worldengine/wire"
)

// limitEvents makes the bus refuse events above a size.
func limitEvents(t *testing.T, js jetstream.JetStream, most int32) {
	t.Helper()
	stream, err := js.Stream(t.Context(), wire.EventStream("main"))
	require.NoError(t, err)
	config := stream.CachedInfo().Config
	config.MaxMsgSize = most
	_, err = js.UpdateStream(t.Context(), config)
	require.NoError(t, err)
}

// An event that the bus refuses for good is a dead letter, with one alert even from two servers;
// the events around it and after a restart come.
func TestBus_RefusedEvent(t *testing.T) {
	t.Parallel()
	l := logtest.New(t)
	quick := func(c *Config) {
		c.Bus, c.DeliveryAttempts, c.Logger = true, 2, slog.New(slog.DiscardHandler)
	}
	first, second := openEngine(t, l, quick), openEngine(t, l, quick)
	tell := func(e *Engine, w runevents.Write) {
		_, err := e.Runs().Append(t.Context(), "t", []runevents.Write{w})
		require.NoError(t, err)
	}
	tell(first, logtest.Told(1))
	waitFollowed(t, first, 1)
	waitFollowed(t, second, 1)
	limitEvents(t, logtest.JetStream(l), 4000) // both have opened the stream, and leave it alone
	large := logtest.Told(2)
	large.Payload = []byte(`{"text":"` + strings.Repeat("x", 4000) + `"}`)
	tell(first, large)
	waitFollowed(t, first, 2)
	waitFollowed(t, second, 2)
	third := openEngine(t, l, quick) // it makes the stream of events what it was
	tell(third, logtest.Told(3))
	waitFollowed(t, third, 3)

	letters := alertstest.Letters(t, logtest.JetStream(l))
	require.Len(t, letters, 1)
	require.Equal(t, "deadletter.v1.main.WORLD_main_RUNEVENTS.2.0", letters[0].Subject)
	var r runevents.Record
	require.NoError(t, json.Unmarshal(letters[0].Data, &r))
	require.Equal(t, large.EventID, r.EventID)
	require.Eventually(t, func() bool {
		return len(alertstest.Raised(t, logtest.JetStream(l))) > 0
	}, 20*time.Second, 10*time.Millisecond)
	require.NoError(t, first.Close(t.Context()))
	require.NoError(t, second.Close(t.Context()))
	raised := alertstest.Raised(t, logtest.JetStream(l))
	require.Len(t, raised, 1)
	require.Equal(t, runevents.EventBusDeliveryFailed, raised[0].Code)
	require.Equal(t, []string{"run", large.EventID, letters[0].Subject},
		[]string{raised[0].RunID, raised[0].EventID, raised[0].DeadLetter})
	count := first.Stats().Alerts[runevents.EventBusDeliveryFailed] +
		second.Stats().Alerts[runevents.EventBusDeliveryFailed]
	require.Contains(t, []int64{1, 2}, count)
}

func waitFollowed(t *testing.T, e *Engine, seq uint64) {
	t.Helper()
	require.Eventually(t, func() bool { return e.bus.Position() >= seq }, 30*time.Second,
		time.Millisecond)
}

// An unreadable log message is a dead letter with its bytes.
func TestBus_UnreadableMessage(t *testing.T) {
	t.Parallel()
	l := logtest.New(t)
	e := openEngine(t, l, func(c *Config) {
		c.Bus, c.Logger = true, slog.New(slog.DiscardHandler)
	})
	_, err := logtest.JetStream(l).PublishMsg(t.Context(), &nats.Msg{
		Subject: wire.RefusedSubject("main", "t"), Data: []byte("{damaged"),
		Header: nats.Header{wire.KindHeader: {string(commitlog.KindRefused)},
			wire.RunIDHeader: {"run"}},
	})
	require.NoError(t, err)
	waitFollowed(t, e, 1)
	letters := alertstest.Letters(t, logtest.JetStream(l))
	require.Len(t, letters, 1)
	require.Equal(t, "{damaged", string(letters[0].Data))
	require.Equal(t, "world.main.refused.t", letters[0].Header.Get(wire.OriginalSubjectHeader))
	require.Contains(t, letters[0].Header.Get(wire.DeadLetterReasonHeader), "not a commit record")
}
