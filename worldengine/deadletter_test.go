package worldengine

import (
	"context"
	"errors"
	"log/slog"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/go-json-experiment/json"
	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
	"github.com/stretchr/testify/require"

	"worldengine/dedupe"
	"worldengine/runevents"
	"worldengine/worldengine/follow"
	"worldengine/worldengine/natstest"
)

func testLetters(t *testing.T) (*deadLetters, *[]runevents.Alert) {
	t.Helper()
	letters, err := newDeadLetters(natstest.Connect(t), "main", 1, slog.New(slog.DiscardHandler))
	require.NoError(t, err)
	_, err = letters.stream.js.CreateStream(t.Context(), letters.stream.config)
	require.NoError(t, err)
	alerts := new([]runevents.Alert)
	letters.raise = func(a runevents.Alert) { *alerts = append(*alerts, a) }
	return letters, alerts
}

func someLetter(data []byte) follow.Letter {
	return follow.Letter{
		Stream: EventStream("main"), LogSeq: 42, LogPart: 3, Subject: "runevents.v2.main.t.run",
		Header: nats.Header{EventTypeHeader: {"Told"}, jetstream.ExpectedLastSeqHeader: {"7"}},
		Data:   data, Reason: errors.New("much too large"),
	}
}

// allLetters returns the dead letters, oldest first.
func allLetters(t *testing.T, js jetstream.JetStream) (all []*jetstream.RawStreamMsg) {
	t.Helper()
	stream, err := js.Stream(t.Context(), DeadLetterStream("main"))
	require.NoError(t, err)
	for seq := uint64(1); seq <= stream.CachedInfo().State.LastSeq; seq++ {
		msg, err := stream.GetMsg(t.Context(), seq)
		require.NoError(t, err)
		all = append(all, msg)
	}
	return all
}

// A dead letter has the body as it was, and headers that say what it is and why; it is kept once.
func TestADeadLetter(t *testing.T) {
	t.Parallel()
	d, alerts := testLetters(t)
	for range 2 {
		require.NoError(t, d.keep(t.Context(), someLetter([]byte("body"))))
	}
	all := allLetters(t, d.stream.js)
	require.Len(t, all, 1)
	require.Equal(t, "deadletter.v1.main.WORLD_main_RUNEVENTS.42.3", all[0].Subject)
	require.Equal(t, "body", string(all[0].Data))
	require.Equal(t, map[string]string{
		"Log-Seq": "42", "Log-Part": "3", "Event-Type": "Told", "Dead-Letter-Reason": "much too large",
		"Original-Subject": "runevents.v2.main.t.run",
	}, without(all[0].Header, "Nats-"))
	require.Len(t, *alerts, 2)
	require.Equal(t, (*alerts)[0].ID(), (*alerts)[1].ID())
}

// without returns the headers that do not begin with a prefix.
func without(header nats.Header, prefix string) map[string]string {
	rest := map[string]string{}
	for name := range header {
		if !strings.HasPrefix(name, prefix) {
			rest[name] = header.Get(name)
		}
	}
	return rest
}

// What is too large for a dead letter too is one without its body, which points to the log.
func TestADeadLetterWithoutItsBody(t *testing.T) {
	t.Parallel()
	d, alerts := testLetters(t)
	size := int(d.stream.js.Conn().MaxPayload()) + 1
	require.NoError(t, d.keep(t.Context(), someLetter(make([]byte, size))))
	all := allLetters(t, d.stream.js)
	require.Len(t, all, 1)
	require.Empty(t, all[0].Data)
	require.Equal(t, map[string]string{
		"Log-Seq": "42", "Log-Part": "3", "Dead-Letter-Reason": "much too large",
		"Original-Subject": "runevents.v2.main.t.run", "Original-Size": strconv.Itoa(size),
	}, without(all[0].Header, "Nats-"))
	require.Len(t, *alerts, 1)
	require.Equal(t, all[0].Subject, (*alerts)[0].DeadLetter)
}

// Dead letters whose stream is gone are not lost: it is made again.
func TestDeadLettersOutliveTheirStream(t *testing.T) {
	t.Parallel()
	d, alerts := testLetters(t)
	require.NoError(t, d.stream.js.DeleteStream(t.Context(), DeadLetterStream("main")))
	require.Error(t, d.keep(t.Context(), someLetter(nil)))
	require.Empty(t, *alerts)
	require.NoError(t, d.keep(t.Context(), someLetter(nil)))
	require.Len(t, *alerts, 1)
}

// The alert names the run, and the event or the handoff, as far as the message says them.
func TestTheAlertAboutADeadLetter(t *testing.T) {
	t.Parallel()
	r := runevents.Record{Write: told(1), RunSeq: 5, PersistedAt: "2026-02-16T10:00:00.123Z"}
	event, err := json.Marshal(r)
	require.NoError(t, err)
	letter := someLetter(event)
	alert := deliveryFailed(&letter, "subject")
	want := runevents.NewAlert(runevents.EventBusDeliveryFailed, &r, alert.Message)
	want.DeadLetter = "subject"
	require.Equal(t, want, alert)
	require.Equal(t, runevents.P1, alert.Severity)
	require.Equal(t, "runevents.v2.main.t.run cannot be brought to WORLD_main_RUNEVENTS: "+
		"part 3 of what is derived from log sequence 42: much too large", alert.Message)

	receipt, err := (&dedupe.Receipt{RunID: "run", HandoffID: "h", Result: []byte("{}")}).Message("main")
	require.NoError(t, err)
	letter.Data = receipt.Data
	alert = deliveryFailed(&letter, "subject")
	require.Equal(t, "EVENT_BUS_DELIVERY_FAILED|run|h", alert.ID())

	letter.Data, letter.Unreadable, letter.Header = []byte("?"), true, nats.Header{RunIDHeader: {"run"}}
	alert = deliveryFailed(&letter, "subject")
	require.Equal(t, "EVENT_BUS_DELIVERY_FAILED|run|subject", alert.ID())
}

// limitEvents makes the bus refuse events of more than some bytes.
func limitEvents(t *testing.T, js jetstream.JetStream, most int32) {
	t.Helper()
	stream, err := js.Stream(t.Context(), EventStream("main"))
	require.NoError(t, err)
	config := stream.CachedInfo().Config
	config.MaxMsgSize = most
	_, err = js.UpdateStream(t.Context(), config)
	require.NoError(t, err)
}

// An event that the bus refuses for good is a dead letter, with one alert though two servers follow;
// the events around it come, and so do those of after a restart.
func TestAnEventThatTheBusRefuses(t *testing.T) {
	t.Parallel()
	l := newLog(t)
	quick := func(c *Config) { c.DeliveryAttempts, c.Logger = 2, slog.New(slog.DiscardHandler) }
	first, second := openEngine(t, l, quick), openEngine(t, l, quick)
	limitEvents(t, l.jetStream(), 4000)
	large := told(2)
	large.Payload = []byte(`{"text":"` + strings.Repeat("x", 4000) + `"}`)
	for _, w := range []runevents.Write{told(1), large} {
		_, err := first.AppendEvents(t.Context(), "t", []runevents.Write{w})
		require.NoError(t, err)
	}
	waitFollowed(t, first, 2)
	waitFollowed(t, second, 2)
	third := openEngine(t, l, quick) // it makes the stream of events what it was
	_, err := third.AppendEvents(t.Context(), "t", []runevents.Write{told(3)})
	require.NoError(t, err)
	waitFollowed(t, third, 3)

	letters := allLetters(t, l.jetStream())
	require.Len(t, letters, 1)
	require.Equal(t, "deadletter.v1.main.WORLD_main_RUNEVENTS.2.0", letters[0].Subject)
	var r runevents.Record
	require.NoError(t, json.Unmarshal(letters[0].Data, &r))
	require.Equal(t, large.EventID, r.EventID)
	require.Eventually(t, func() bool { return len(raised(t, l.jetStream())) > 0 }, 20*time.Second, 10*time.Millisecond)
	require.NoError(t, first.Close(t.Context()))
	require.NoError(t, second.Close(t.Context()))
	alerts := raised(t, l.jetStream())
	require.Len(t, alerts, 1)
	require.Equal(t, runevents.EventBusDeliveryFailed, alerts[0].Code)
	require.Equal(t, []string{"run", large.EventID, letters[0].Subject},
		[]string{alerts[0].RunID, alerts[0].EventID, alerts[0].DeadLetter})
	count := first.Stats().Alerts[runevents.EventBusDeliveryFailed] +
		second.Stats().Alerts[runevents.EventBusDeliveryFailed]
	require.Contains(t, []int64{1, 2}, count)
}

func waitFollowed(t *testing.T, e *Engine, seq uint64) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 30*time.Second)
	defer cancel()
	require.NoError(t, e.eventFollower.Wait(ctx, seq))
	require.NoError(t, e.receiptFollower.Wait(ctx, seq))
}

// A log message that cannot be read is a dead letter as it is.
func TestALogMessageThatCannotBeRead(t *testing.T) {
	t.Parallel()
	l := newLog(t)
	e := openEngine(t, l, func(c *Config) { c.Logger = slog.New(slog.DiscardHandler) })
	_, err := l.jetStream().PublishMsg(t.Context(), &nats.Msg{
		Subject: refusedSubject("main", "t"), Data: []byte("{damaged"),
		Header: nats.Header{kindHeader: {string(kindRefused)}, RunIDHeader: {"run"}},
	})
	require.NoError(t, err)
	waitFollowed(t, e, 1)
	letters := allLetters(t, l.jetStream())
	require.Len(t, letters, 1)
	require.Equal(t, "{damaged", string(letters[0].Data))
	require.Equal(t, "world.main.refused.t", letters[0].Header.Get(OriginalSubjectHeader))
	require.Contains(t, letters[0].Header.Get(DeadLetterReasonHeader), "not a commit record")
}
