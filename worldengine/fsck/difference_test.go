package fsck

import (
	"maps"
	"testing"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
	"github.com/stretchr/testify/require"

	"worldengine/worldengine/commitlog"
	"worldengine/worldengine/follow"
	"worldengine/worldengine/wire"
)

// Each way in which a stored message may differ from the derived one, and the headers that a
// follower, NATS and a repair may add to it.
func TestDifference(t *testing.T) {
	t.Parallel()
	header := nats.Header{"A": {"1"}, "B": {"2"}}
	want := &nats.Msg{Subject: "s", Header: header, Data: []byte("body")}
	at := commitlog.Position{Seq: 7, Part: 1}
	for name, c := range map[string]struct {
		change func(*jetstream.RawStreamMsg)
		what   string
		is     bool
	}{
		"the same": {func(*jetstream.RawStreamMsg) {}, "", true},
		"headers that may be added": {func(m *jetstream.RawStreamMsg) {
			m.Header.Set("Nats-Time-Stamp", "now")
			m.Header.Set(jetstream.MsgIDHeader, "id")
			m.Header.Set(repairedHeader, "true")
		}, "", true},
		"another place": {func(m *jetstream.RawStreamMsg) { m.Header.Set(wire.LogPartHeader, "2") },
			"", false},
		"no place": {func(m *jetstream.RawStreamMsg) { m.Header.Del(wire.LogSeqHeader) }, "",
			false},
		"another subject": {func(m *jetstream.RawStreamMsg) { m.Subject = "t" },
			"the subject is not the one that the log derives", false},
		"another header": {func(m *jetstream.RawStreamMsg) { m.Header.Set("B", "3") },
			"the header B is not the one that the log derives", false},
		"a header less": {func(m *jetstream.RawStreamMsg) { m.Header.Del("A") },
			"the header A is not the one that the log derives", false},
		"a header more": {func(m *jetstream.RawStreamMsg) { m.Header.Set("C", "") },
			"the log derives no header C", false},
		"the first of two headers": {func(m *jetstream.RawStreamMsg) {
			m.Header.Set("A", "")
			m.Header.Set("B", "")
		}, "the header A is not the one that the log derives", false},
		"another body": {func(m *jetstream.RawStreamMsg) { m.Data = []byte("BODY") },
			"the body is not the one that the log derives", false},
	} {
		raw := &jetstream.RawStreamMsg{
			Subject: "s", Sequence: 3, Data: []byte("body"), Header: maps.Clone(header),
		}
		raw.Header[wire.LogSeqHeader] = []string{"7"}
		raw.Header[wire.LogPartHeader] = []string{"1"}
		c.change(raw)
		got := commitlog.NewMessage(follow.Stored(raw), raw.Sequence, time.Time{})
		what, _, _ := difference(want, got)
		require.Equal(t, c.what, what, name)
		require.Equal(t, c.is, isDerived(got, want, at), name)
	}
}
