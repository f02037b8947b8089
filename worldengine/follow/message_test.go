package follow

import (
	"maps"
	"sync/atomic"
	"testing"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
	"github.com/stretchr/testify/require"
)

// A message is sent with its place and its guards, and with nothing of the one before it: what is
// filled again is what is made anew. In a replicated stream the id of the one before is no guard.
func TestASendingIsFilledAgain(t *testing.T) {
	t.Parallel()
	messages := []Message{
		{Subject: "a", ID: "id-a", Headers: []Header{{"Event-Type", "A"}, {"Kind", "k"}},
			Data: []byte("1")},
		{Subject: "b", Headers: []Header{{"Event-Type", "B"}}, Data: []byte("2")},
		{Subject: "c", ID: "id-c"},
	}
	guarded := func(id, part, after, afterID string, others ...string) nats.Header {
		header := nats.Header{
			jetstream.MsgIDHeader: {id}, "Log-Seq": {"7"}, "Log-Part": {part},
			jetstream.ExpectedLastSeqHeader: {after},
		}
		if afterID != "" {
			header[jetstream.ExpectedLastMsgIDHeader] = []string{afterID}
		}
		for i := 0; i < len(others); i += 2 {
			header[others[i]] = others[i+1 : i+2]
		}
		return header
	}
	for replicated, ids := range map[bool][2]string{false: {"id-a", "7.1"}, true: {"", ""}} {
		tail, again := chain{seq: 40, replicated: replicated}, newSending()
		for i, want := range []nats.Header{
			guarded("id-a", "0", "40", "", "Event-Type", "A", "Kind", "k"),
			guarded("7.1", "1", "41", ids[0], "Event-Type", "B"),
			guarded("id-c", "2", "42", ids[1]),
		} {
			tail = tail.link(again, &messages[i], place{7, i})
			require.Equal(t, want, again.msg.Header)
			require.Equal(t, messages[i].Subject, again.msg.Subject)
			require.Equal(t, messages[i].Data, again.msg.Data)
		}
		require.Equal(t, uint64(43), tail.seq)
	}
	require.Equal(t, nats.Header{jetstream.MsgIDHeader: {"id-c"}}, messages[2].Msg().Header)
	require.Equal(t, nats.Header{"Event-Type": {"B"}}, messages[1].Msg().Header)
}

// What waits for an ack stays as it was sent while others are sent: NATS's client sends it again
// where nobody answered.
func TestWhatWaitsForAnAckIsNotChanged(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.write(0, 20)
	type message struct {
		at  *nats.Msg
		was nats.Msg
	}
	var waiting []message
	var count atomic.Int64
	f, stop := w.run(func(c *Config) {
		c.JetStream = asking{w.js, &count, func(m *nats.Msg) {
			was := *m
			was.Header = maps.Clone(m.Header)
			for name, values := range was.Header {
				was.Header[name] = append([]string(nil), values...)
			}
			waiting = append(waiting, message{m, was})
		}}
	})
	w.wait(f, 20)
	w.write(20, 40)
	w.wait(f, 40)
	stop()
	require.Greater(t, len(waiting), 1)
	for _, m := range waiting {
		require.Equal(t, m.was.Header, m.at.Header)
		require.Equal(t, m.was.Subject, m.at.Subject)
		require.Equal(t, m.was.Data, m.at.Data)
	}
}
