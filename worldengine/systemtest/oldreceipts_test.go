package systemtest_test

import (
	"bytes"
	"log/slog"
	"strings"
	"testing"

	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"
	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
	"github.com/stretchr/testify/require"

	"worldengine/dedupe"
	"worldengine/worldengine"
	"worldengine/worldengine/natstest"
	"worldengine/worldengine/server"
	"worldengine/worldengine/wire"
)

// storedReceipts returns all messages of the stream of receipts.
func storedReceipts(t *testing.T, js jetstream.JetStream) (all []*nats.Msg) {
	t.Helper()
	stream, err := js.Stream(t.Context(), wire.ReceiptStream("main"))
	require.NoError(t, err)
	state := stream.CachedInfo().State
	for seq := state.FirstSeq; seq <= state.LastSeq; seq++ {
		msg, err := stream.GetMsg(t.Context(), seq)
		require.NoError(t, err)
		all = append(all, &nats.Msg{Subject: msg.Subject, Header: msg.Header, Data: msg.Data})
	}
	return all
}

// asBefore makes of a receipt what the version before stored: no town, neither in the subject nor
// in it.
func asBefore(t *testing.T, m *nats.Msg) *nats.Msg {
	t.Helper()
	var members map[string]jsontext.Value
	require.NoError(t, json.Unmarshal(m.Data, &members))
	delete(members, "townId")
	data, err := json.Marshal(members, json.Deterministic(true))
	require.NoError(t, err)
	return &nats.Msg{
		Subject: "world.main.receipts." + dedupe.PlaceOf(m.Subject).Key, Data: data,
		Header: m.Header,
	}
}

// replaceReceipts makes the stream of receipts of another configuration and other messages.
func replaceReceipts(t *testing.T, js jetstream.JetStream, subject string, messages []*nats.Msg) {
	t.Helper()
	stream, err := js.Stream(t.Context(), wire.ReceiptStream("main"))
	require.NoError(t, err)
	config := stream.CachedInfo().Config
	config.Subjects = []string{subject}
	require.NoError(t, js.DeleteStream(t.Context(), config.Name))
	_, err = js.CreateStream(t.Context(), config)
	require.NoError(t, err)
	for _, m := range messages {
		header := nats.Header{}
		for _, name := range []string{"Log-Seq", "Log-Part"} {
			header[name] = m.Header[name]
		}
		_, err := js.PublishMsg(t.Context(), &nats.Msg{Subject: m.Subject, Header: header,
			Data: m.Data})
		require.NoError(t, err)
	}
}

// resubject changes the subjects of the stream of receipts and leaves its messages.
func resubject(
	t *testing.T, js jetstream.JetStream, subject string,
	transform *jetstream.SubjectTransformConfig,
) {
	t.Helper()
	stream, err := js.Stream(t.Context(), wire.ReceiptStream("main"))
	require.NoError(t, err)
	config := stream.CachedInfo().Config
	config.Subjects, config.SubjectTransform = []string{subject}, transform
	_, err = js.UpdateStream(t.Context(), config)
	require.NoError(t, err)
}

// A world whose receipts an earlier version wrote, on subjects without the town, opens: its
// receipts are made again from the log, wherever that was cut off.
func TestReceiptsOfAnEarlierVersion(t *testing.T) {
	t.Parallel()
	const before, now = "world.main.receipts.*", "world.main.receipts.*.*"
	for name, c := range map[string]struct {
		told  bool // that they are removed
		leave func(t *testing.T, js jetstream.JetStream, old, right []*nats.Msg)
	}{
		"as they were": {true, func(t *testing.T, js jetstream.JetStream, old, _ []*nats.Msg) {
			replaceReceipts(t, js, before, old)
		}},
		"closed by a repair that was killed": {true,
			func(t *testing.T, js jetstream.JetStream, old, _ []*nats.Msg) {
				replaceReceipts(t, js, before, old)
				resubject(t, js, "world.main.receipts-repair.*", &jetstream.SubjectTransformConfig{
					Source:      "world.main.receipts-repair.*",
					Destination: "world.main.receipts.{{wildcard(1)}}",
				})
			}},
		"restored from a backup": {true, func(t *testing.T, js jetstream.JetStream, old,
			_ []*nats.Msg) {
			replaceReceipts(t, js, before, old)
			resubject(t, js, now, nil)
		}},
		"none in the stream": {false, func(t *testing.T, js jetstream.JetStream, _, _ []*nats.Msg) {
			replaceReceipts(t, js, before, nil)
		}},
		"removed": {false, func(t *testing.T, js jetstream.JetStream, _, _ []*nats.Msg) {
			require.NoError(t, js.DeleteStream(t.Context(), wire.ReceiptStream("main")))
		}},
		"removed and made": {false, func(t *testing.T, js jetstream.JetStream, _, _ []*nats.Msg) {
			replaceReceipts(t, js, now, nil)
		}},
		"made again in part": {false, func(t *testing.T, js jetstream.JetStream, _,
			right []*nats.Msg) {
			replaceReceipts(t, js, now, right[:3])
		}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			nc := natstest.Connect(t)
			js, err := jetstream.New(nc)
			require.NoError(t, err)
			var told bytes.Buffer
			w := &checkedWorld{t: t, config: server.Config{
				NATS: nc.ConnectedUrl(), Logger: slog.New(slog.DiscardHandler),
			}}
			w.open()
			w.populate()
			right := storedReceipts(t, js)
			w.close()
			old := make([]*nats.Msg, len(right))
			for i, m := range right {
				old[i] = asBefore(t, m)
			}
			c.leave(t, js, old, right)

			w.config.Logger = slog.New(slog.NewTextHandler(&told, nil))
			w.open()
			w.again(w.executed)
			receipt, err := w.engine.Receipt(t.Context(), "", w.executed.IdempotencyKey)
			require.NoError(t, err)
			require.Equal(t, w.executed.HandoffID, receipt.HandoffID)
			require.Equal(t, "town-1", receipt.TownID)
			w.clean()
			w.close()
			made := storedReceipts(t, js)
			require.Len(t, made, len(right))
			for i := range made {
				require.Equal(t, right[i].Subject, made[i].Subject)
				require.Equal(t, string(right[i].Data), string(made[i].Data))
			}
			stream, err := js.Stream(t.Context(), wire.ReceiptStream("main"))
			require.NoError(t, err)
			require.Equal(t, []string{now}, stream.CachedInfo().Config.Subjects)
			require.Equal(t, c.told, strings.Contains(told.String(), "are of an earlier version"))
		})
	}
}

// fsck finds receipts of an earlier version that no server of this one has met, and a repair makes
// the right ones of them.
func TestFsckFindsReceiptsOfAnEarlierVersion(t *testing.T) {
	w := newCheckedWorld(t, worldengine.Config{}).populate()
	right := w.receipt(w.executed)
	old := asBefore(t, &nats.Msg{Subject: right.Subject, Header: right.Header, Data: right.Data})
	resubject(t, w.js, "world.main.receipts.>", nil)
	seq := w.publish(old.Subject, right.Header, old.Data)
	resubject(t, w.js, "world.main.receipts.*.*", nil)
	found := only(t, w.fsck(impatient))
	require.Equal(t, seq, found.Sequence)
	require.Equal(t, "the log derives no such receipt", found.What)
	w.repaired()
}
