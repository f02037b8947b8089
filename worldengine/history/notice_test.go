package history_test

import (
	"encoding/json"
	"slices"
	"strings"
	"testing"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
	"github.com/stretchr/testify/require"

	"worldengine/schemas"
	"worldengine/worldengine/commitlog"
	"worldengine/worldengine/commitlog/logtest"
	"worldengine/worldengine/follow"
	"worldengine/worldengine/history"
	"worldengine/worldengine/lifecycle"
	"worldengine/worldengine/messages"
	"worldengine/worldengine/town/towntest"
	"worldengine/worldengine/wire"
)

// notices reads the whole log as a server does, and returns what is published of it.
func (w *world) notices() (subjects []string, said []messages.Change) {
	w.t.Helper()
	announce := history.Announce(w.Log.World, func(subject string, data []byte) error {
		_, err := schemas.Parse(schemas.TownChange, data, schemas.Limits{})
		require.NoError(w.t, err, "%s", data)
		var change messages.Change
		require.NoError(w.t, json.Unmarshal(data, &change))
		subjects, said = append(subjects, subject), append(said, change)
		return nil
	}, func(msg jetstream.Msg) jetstream.Msg { return msg })
	info, err := w.Log.Stream.Info(w.t.Context())
	require.NoError(w.t, err)
	for seq := uint64(1); seq <= info.State.LastSeq; seq++ {
		raw, err := w.Log.Stream.GetMsg(w.t.Context(), seq)
		require.NoError(w.t, err)
		msg := follow.Stored(raw)
		require.Equal(w.t, msg, announce(msg), "the message goes on as it came")
	}
	return subjects, said
}

// The notices are what the history of the town has without a run, and nothing else.
func TestNoticesOfChangesWithoutARun(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.put(towntest.Threatened())
	w.judge("failed")
	w.signal(commitlog.KindControl, lifecycle.SignalPause,
		func(e *commitlog.Entry) { e.Paused = &commitlog.PausedBy{SignalID: "s"} })
	w.signal(commitlog.KindDecided, lifecycle.SignalApprove)
	w.accept("executed")
	for _, kind := range []commitlog.Kind{commitlog.KindPending, commitlog.KindMend} {
		rec := &commitlog.Record{Kind: kind, TownID: townID}
		logtest.Commit(t, w.Log, rec)
	}
	w.put(towntest.Threatened())

	var want []messages.Change
	for _, r := range w.all(townID, 0) {
		if r.RunID == "" {
			want = append(want, messages.Change{TownID: townID, Revision: r})
		}
	}
	slices.Reverse(want)
	subjects, said := w.notices()
	require.Equal(t, want, said)
	require.Len(t, said, 4)
	require.Equal(t, "ada", said[0].ActorID)
	for _, subject := range subjects {
		require.Equal(t, "worldengine.v1.main.changes."+townID, subject)
	}
}

// The id of a town that is too long for a header stands in the record; what cannot be read has no
// notice.
func TestNoticesOfOddMessages(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	long := strings.Repeat("ä", commitlog.MaxTownHeader)
	publish := func(msg *nats.Msg) {
		_, err := logtest.JetStream(w.Log).PublishMsg(t.Context(), msg)
		require.NoError(t, err)
	}
	publish(logtest.PutTown(t, long, 7))
	for header, value := range map[string]string{wire.TownHeader: "%", wire.ActorHeader: "%",
		wire.KindHeader: "of-a-later-version"} {
		msg := logtest.PutTown(t, "t"+header, 1)
		msg.Header[header] = []string{value}
		publish(msg)
	}
	damaged := logtest.PutTown(t, long+long, 1)
	damaged.Data = []byte("{")
	publish(damaged)
	publish(&nats.Msg{Subject: wire.ControlSubject("main"), Data: []byte("{}"),
		Header: nats.Header{wire.KindHeader: {"control"}}})
	subjects, said := w.notices()
	require.Len(t, said, 1)
	require.Equal(t, long, said[0].TownID)
	require.Equal(t, wire.ChangesSubject("main", wire.TownToken(long)), subjects[0])
}

// What it costs a handoff that puts have notices.
func BenchmarkNoNotice(b *testing.B) {
	msg := follow.Stored(&jetstream.RawStreamMsg{Header: nats.Header{
		wire.KindHeader: {"handoff"}, wire.TownHeader: {"t"}, wire.HashHeader: {"h"},
		wire.EpochHeader: {"1"}, wire.RunIDHeader: {"run"},
		jetstream.ExpectedLastSubjSeqHeader: {"1"},
	}})
	read := history.Announce("main", func(string, []byte) error { panic("a notice") },
		func(msg jetstream.Msg) jetstream.Msg { return msg })
	for b.Loop() {
		read(msg)
	}
}
