package alerts_test

import (
	"errors"
	"log/slog"
	"strconv"
	"strings"
	"testing"

	"github.com/go-json-experiment/json"
	"github.com/google/uuid"
	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
	"github.com/stretchr/testify/require"

	"worldengine/runevents"
	"worldengine/worldengine/alerts"
	"worldengine/worldengine/alerts/alertstest"
	"worldengine/worldengine/natstest"
	"worldengine/worldengine/wire"
)

func testLetters(t *testing.T) (*alerts.DeadLetters, *[]runevents.Alert) {
	t.Helper()
	js, err := jetstream.New(natstest.Connect(t))
	require.NoError(t, err)
	letters := alerts.NewDeadLetters(js, "main", 1, slog.New(slog.DiscardHandler), nil)
	_, err = letters.Stream.JetStream.CreateStream(t.Context(), letters.Stream.Config)
	require.NoError(t, err)
	raised := new([]runevents.Alert)
	letters.Raise = func(a runevents.Alert) { *raised = append(*raised, a) }
	return letters, raised
}

func someLetter(data []byte) alerts.DeadLetter {
	return alerts.DeadLetter{
		Stream: wire.EventStream("main"), LogSeq: 42, LogPart: 3,
		Subject: "runevents.v2.main.t.run",
		Header: nats.Header{wire.EventTypeHeader: {"Told"},
			jetstream.ExpectedLastSeqHeader: {"7"}},
		Data: data, Reason: errors.New("much too large"),
	}
}

// A dead letter has the body as it was, and headers that say what it is and why; it is kept once.
func TestADeadLetter(t *testing.T) {
	t.Parallel()
	d, raised := testLetters(t)
	for range 2 {
		require.NoError(t, d.Keep(t.Context(), someLetter([]byte("body"))))
	}
	all := alertstest.Letters(t, d.Stream.JetStream)
	require.Len(t, all, 1)
	require.Equal(t, "deadletter.v1.main.WORLD_main_RUNEVENTS.42.3", all[0].Subject)
	require.Equal(t, "body", string(all[0].Data))
	require.Equal(t, map[string]string{
		"Log-Seq": "42", "Log-Part": "3", "Event-Type": "Told",
		"Dead-Letter-Reason": "much too large", "Original-Subject": "runevents.v2.main.t.run",
	}, without(all[0].Header, "Nats-"))
	require.Len(t, *raised, 2)
	require.Equal(t, (*raised)[0].ID(), (*raised)[1].ID())
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
	d, raised := testLetters(t)
	size := int(d.Stream.JetStream.Conn().MaxPayload()) + 1
	require.NoError(t, d.Keep(t.Context(), someLetter(make([]byte, size))))
	all := alertstest.Letters(t, d.Stream.JetStream)
	require.Len(t, all, 1)
	require.Empty(t, all[0].Data)
	require.Equal(t, map[string]string{
		"Log-Seq": "42", "Log-Part": "3", "Dead-Letter-Reason": "much too large",
		"Original-Subject": "runevents.v2.main.t.run", "Original-Size": strconv.Itoa(size),
	}, without(all[0].Header, "Nats-"))
	require.Len(t, *raised, 1)
	require.Equal(t, all[0].Subject, (*raised)[0].DeadLetter)
}

// Dead letters whose stream is gone are not lost: it is made again.
func TestDeadLettersOutliveTheirStream(t *testing.T) {
	t.Parallel()
	d, raised := testLetters(t)
	require.NoError(t, d.Stream.JetStream.DeleteStream(t.Context(), wire.DeadLetterStream("main")))
	require.Error(t, d.Keep(t.Context(), someLetter(nil)))
	require.Empty(t, *raised)
	require.NoError(t, d.Keep(t.Context(), someLetter(nil)))
	require.Len(t, *raised, 1)
}

// The alert names the run, and the event or the handoff, as far as the message says them.
func TestTheAlertAboutADeadLetter(t *testing.T) {
	t.Parallel()
	r := runevents.Record{RunSeq: 5, PersistedAt: "2026-02-16T10:00:00.123Z",
		Write: runevents.Write{
			EventID: uuid.NewString(), EventType: "Told", EmittedAt: "2026-02-16T10:00:00.123Z",
			RunID: "run", TenantID: "default", ProjectID: "main", EnvironmentID: "local",
			PlanID: "plan", PlanVersion: "1", EngineAttemptID: 1, LogicalAttemptID: 1,
			StepID: "build",
		}}
	event, err := json.Marshal(r)
	require.NoError(t, err)
	letter := someLetter(event)
	alert := alerts.DeliveryFailed(&letter, "subject")
	want := runevents.NewAlert(runevents.EventBusDeliveryFailed, &r, alert.Message)
	want.DeadLetter = "subject"
	require.Equal(t, want, alert)
	require.Equal(t, runevents.P1, alert.Severity)
	require.Equal(t, "runevents.v2.main.t.run cannot be brought to WORLD_main_RUNEVENTS: "+
		"part 3 of what is derived from log sequence 42: much too large", alert.Message)

	letter.Data, letter.Unreadable, letter.Header = []byte("?"), true, nats.Header{
		wire.RunIDHeader: {"run"},
	}
	alert = alerts.DeliveryFailed(&letter, "subject")
	require.Equal(t, "EVENT_BUS_DELIVERY_FAILED|run|subject", alert.ID())
}
