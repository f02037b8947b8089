package commitlog

import (
	"strings"
	"testing"

	"github.com/go-json-experiment/json"
	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
	"github.com/stretchr/testify/require"

	"worldengine/handoff"
	"worldengine/runevents"
	"worldengine/trace"
	"worldengine/worldengine/wire"
)

// recorded is the message of a record of the town "Town 1", as it is read from the log.
func recorded(t *testing.T, kind Kind, change ...func(*Record)) jetstream.Msg {
	t.Helper()
	rec := &Record{
		Kind: kind, TownID: "Town 1",
		Addition: &handoff.Addition{ActorID: "mayor-1", ProposalType: "TALK"},
		Result:   []byte(`{"resultId":"result-1","handoffId":"handoff-1","idempotencyKey":"key-1"}`),
		Run: &runevents.Run{
			Identity: runevents.Identity{RunID: "run-1", PlanID: "plan-1"}, FirstSeq: 3,
			Events: []runevents.Event{
				{EventID: "e-3", EventType: runevents.RunQueued, LogicalAttemptID: 1},
				{EventID: "e-4", EventType: runevents.RunStarted, LogicalAttemptID: 1},
			},
		},
	}
	for _, c := range change {
		c(rec)
	}
	msg, err := rec.Message("log.a", nil)
	require.NoError(t, err)
	return stored(msg)
}

// The events of a record go to the bus as they stand there, each by itself: persisted when the log
// stored the record, on the subject of their run, named by type and id for consumers.
func TestDeriveEvents(t *testing.T) {
	t.Parallel()
	of := trace.Parse("00-"+strings.Repeat("1", 32)+"-00f067aa0ba902b7-01", "a=b")
	for _, c := range []struct {
		kind  Kind
		trace trace.Context
	}{{KindHandoff, trace.Context{}}, {KindRefused, of}, {KindEvents, of}, {KindRun, of}} {
		messages, err := DeriveEvents("w")(recorded(t, c.kind,
			func(rec *Record) { rec.Run.Trace = c.trace }))
		require.NoError(t, err)
		require.Len(t, messages, 2)
		for i := range messages {
			m := messages[i].Msg()
			require.Equal(t, "runevents.v2.w.Town%201.run-1", m.Subject)
			var event runevents.Record
			require.NoError(t, json.Unmarshal(m.Data, &event))
			require.Equal(t, int64(3+i), event.RunSeq)
			require.Equal(t, "run-1", event.RunID)
			require.Equal(t, "1970-01-01T00:00:00.001Z", event.PersistedAt)
			want := nats.Header{
				wire.EventTypeHeader:  {string(event.EventType)},
				jetstream.MsgIDHeader: {event.EventID},
			}
			want = c.trace.Header(want)
			if c.kind == KindEvents {
				want[wire.KindHeader] = []string{"events"} // which are others'
			}
			require.Equal(t, want, m.Header)
		}
		require.Equal(t, []string{"e-3"}, messages[0].Msg().Header[jetstream.MsgIDHeader])
	}
}

// A state that was put has no run, and neither has a record without one.
func TestRecordsWithoutEvents(t *testing.T) {
	t.Parallel()
	for _, msg := range []jetstream.Msg{
		recorded(t, KindPut),
		recorded(t, KindControl, func(rec *Record) { rec.Run = nil }),
		recorded(t, KindRun, func(rec *Record) { rec.Run.Events = nil }),
	} {
		messages, err := DeriveEvents("w")(msg)
		require.NoError(t, err)
		require.Empty(t, messages)
	}
}

// What cannot be read is an error, never a record from which nothing is derived.
func TestNothingIsDerivedFromDamage(t *testing.T) {
	t.Parallel()
	damaged := stored(&nats.Msg{Subject: "log.a", Data: []byte("{"),
		Header: nats.Header{wire.KindHeader: {string(KindHandoff)}}})
	_, err := DeriveEvents("w")(damaged)
	require.ErrorContains(t, err, "not a commit record")
}
