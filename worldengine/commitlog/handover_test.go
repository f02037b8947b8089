package commitlog

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
	"github.com/stretchr/testify/require"

	"worldengine/runevents"
	"worldengine/worldengine/follow"
)

// refused returns the record of a refused run, and its message.
func refused(t *testing.T, runID, townID string) (*Record, *nats.Msg) {
	t.Helper()
	rec := &Record{Kind: KindRefused, TownID: townID, Result: []byte(`{"status":"stale"}`),
		Run: &runevents.Run{
			Identity: runevents.Identity{RunID: runID}, FirstSeq: 1,
			Events: []runevents.Event{{EventID: "e", EventType: runevents.RunStarted,
				LogicalAttemptID: 1}},
		}}
	msg, err := rec.Message("log.a", nil)
	require.NoError(t, err)
	return rec, msg
}

func stored(msg *nats.Msg) jetstream.Msg {
	return follow.Stored(&jetstream.RawStreamMsg{
		Subject: msg.Subject, Sequence: 7, Header: msg.Header, Data: msg.Data,
		Time: time.UnixMilli(1),
	})
}

func townOf(t *testing.T, msg jetstream.Msg) string {
	t.Helper()
	d, err := decidedBy(msg)
	require.NoError(t, err)
	return d.TownID
}

func TestHandover(t *testing.T) {
	t.Parallel()
	h := NewHandover()
	rec, msg := refused(t, "run", "town")
	require.Equal(t, "town", townOf(t, h.Read(stored(msg))), "what was not handed over is decoded")

	rec.TownID = "as it was handed over"
	h.Add(msg, rec)
	rec.Run.Events = nil // its producer begins anew
	read := h.Read(stored(msg))
	require.Equal(t, "as it was handed over", townOf(t, read))
	d, err := decidedBy(read)
	require.NoError(t, err)
	require.Len(t, d.Run.Events, 1)
	require.Equal(t, "town", townOf(t, h.Read(stored(msg))), "it is held until it is read")
}

// The message of another instance, or of another attempt of the same run, is decoded.
func TestHandoverOfOtherBytes(t *testing.T) {
	t.Parallel()
	h := NewHandover()
	rec, msg := refused(t, "run", "town")
	h.Add(msg, rec)
	_, other := refused(t, "run", "another town")
	require.Equal(t, "another town", townOf(t, h.Read(stored(other))))
	unreadable := stored(&nats.Msg{Subject: msg.Subject, Header: msg.Header, Data: []byte("{")})
	_, err := decidedBy(h.Read(unreadable))
	require.Error(t, err)
}

func TestHandoverIsBounded(t *testing.T) {
	t.Parallel()
	h := NewHandover()
	for i := range 3 * handoverSize {
		rec, msg := refused(t, fmt.Sprint("run ", i), "town")
		h.Add(msg, rec)
	}
	require.Len(t, h.held, handoverSize)
}

// What is held is bounded in bytes too: a large record is decoded, like one that was not handed
// over.
func TestHandoverOfALargeRecord(t *testing.T) {
	t.Parallel()
	h := NewHandover()
	rec, _ := refused(t, "run", "town")
	rec.Result = fmt.Appendf(nil, `{"status":%q}`, strings.Repeat("s", handoverBytes))
	msg, err := rec.Message("log.a", nil)
	require.NoError(t, err)
	rec.TownID = "as it was handed over"
	h.Add(msg, rec)
	require.Empty(t, h.held)
	require.Equal(t, "town", townOf(t, h.Read(stored(msg))))
}
