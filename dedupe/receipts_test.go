package dedupe

import (
	"strings"
	"testing"
	"time"

	"github.com/nats-io/nats.go/jetstream"
	"github.com/stretchr/testify/require"

	"worldengine/worldengine/natstest"
	"worldengine/worldengine/wire"
)

// newReceipts makes receipts on a real NATS.
func newReceipts(t *testing.T) (*Receipts, jetstream.JetStream) {
	t.Helper()
	nc := natstest.Connect(t)
	js, err := jetstream.New(nc)
	require.NoError(t, err)
	stream, err := js.CreateStream(t.Context(), StreamConfig("w", time.Hour, 1))
	require.NoError(t, err)
	return New("w", stream, func() {}), js
}

// at is where receipts of these tests stand.
func at(digit string) Place { return Place{"t", key(digit)} }

func key(digit string) string { return "proposal_" + strings.Repeat(digit, 64) }

func receipt(digit string, logSeq uint64) *Receipt {
	return &Receipt{
		Place: at(digit), TownID: "t", LogSeq: logSeq, RunID: "run-" + digit,
		HandoffID: "handoff-" +
			digit,
		ResultID: "result-" + digit, Result: []byte(`{"resultId":"result-` + digit + `"}`),
	}
}

// Until the follower has passed a receipt, the instance that committed it answers from memory; from
// then on the stream does, and knows the same.
func TestLookup(t *testing.T) {
	t.Parallel()
	r, js := newReceipts(t)
	none, err := r.Lookup(t.Context(), at("1"), 0)
	require.NoError(t, err)
	require.Nil(t, none)

	own := receipt("1", 7)
	r.Remember(own)
	got, err := r.Lookup(t.Context(), at("1"), 0)
	require.NoError(t, err)
	require.Equal(t, own, got)
	r.Followed(6)
	got, err = r.Lookup(t.Context(), at("1"), 0)
	require.NoError(t, err)
	require.Equal(t, own, got, "it was not followed yet")
	behind, err := r.Lookup(t.Context(), at("1"), 7)
	require.NoError(t, err)
	require.Nil(t, behind, "the stream has all up to there, and may have a later one of the key")

	msg, err := own.Message("w")
	require.NoError(t, err)
	require.Equal(t, "world.w.receipts.t."+key("1"), msg.Subject)
	_, err = js.PublishMsg(t.Context(), msg)
	require.NoError(t, err)
	r.Followed(7)
	require.Empty(t, r.pending, "memory is given back")
	require.Empty(t, r.order)
	got, err = r.Lookup(t.Context(), at("1"), 0)
	require.NoError(t, err)
	want := *own
	want.LogSeq = 0 // the stream does not tell
	require.Equal(t, &want, got)
}

// Towns commit side by side: receipts may be remembered in another order than the log's, or when
// they have been followed already.
func TestRememberOutOfOrder(t *testing.T) {
	t.Parallel()
	r, _ := newReceipts(t)
	r.Remember(receipt("2", 12))
	r.Remember(receipt("1", 11))
	r.Followed(11)
	r.Followed(12)
	require.Empty(t, r.pending)
	r.Remember(receipt("3", 12))
	require.Empty(t, r.pending, "it is in the stream already")
}

// A key belongs to its town: what one town accepted says nothing about another, in memory nor in
// the stream.
func TestAKeyBelongsToItsTown(t *testing.T) {
	t.Parallel()
	r, js := newReceipts(t)
	own := receipt("1", 7)
	r.Remember(own)
	for range 2 {
		for place, want := range map[Place]bool{
			own.Place: true, {"u", own.Key}: false, {own.Town, key("2")}: false,
		} {
			got, err := r.Lookup(t.Context(), place, 0)
			require.NoError(t, err)
			require.Equal(t, want, got != nil, place)
		}
		msg, err := own.Message("w")
		require.NoError(t, err)
		_, err = js.PublishMsg(t.Context(), msg)
		require.NoError(t, err)
		r.Followed(7)
	}
}

// LookupAny finds the town that was the last to accept a key: of those that are not known to be
// followed by the order of the log, or else by that of the stream.
func TestLookupAny(t *testing.T) {
	t.Parallel()
	r, js := newReceipts(t)
	none, err := r.LookupAny(t.Context(), key("1"), 0)
	require.NoError(t, err)
	require.Nil(t, none)
	for seq, townToken := range []string{"t", "u"} {
		stored := receipt("1", uint64(seq+1))
		stored.Town = townToken
		msg, err := stored.Message("w")
		require.NoError(t, err)
		_, err = js.PublishMsg(t.Context(), msg)
		require.NoError(t, err)
	}
	stored, err := r.LookupAny(t.Context(), key("1"), 0)
	require.NoError(t, err)
	require.Equal(t, Place{"u", key("1")}, stored.Place)

	for _, own := range []*Receipt{
		receipt("1", 8), receipt("1", 9), receipt("1", 7), receipt("2", 10),
	} {
		own.Town = own.RunID + "-" + string(rune('a'+own.LogSeq))
		r.Remember(own)
	}
	last, err := r.LookupAny(t.Context(), key("1"), 0)
	require.NoError(t, err)
	require.Equal(t, uint64(9), last.LogSeq)
	last, err = r.LookupAny(t.Context(), key("1"), 9)
	require.NoError(t, err)
	require.Equal(t, Place{"u", key("1")}, last.Place,
		"the stream has all up to there, and may have a later one of the key")
}

// What cannot be asked, or read, is an error: nobody may take the key for free.
func TestLookupFails(t *testing.T) {
	t.Parallel()
	r, js := newReceipts(t)
	_, err := js.Publish(t.Context(), at("1").Subject("w"), []byte("damaged"))
	require.NoError(t, err)
	_, err = r.Lookup(t.Context(), at("1"), 0)
	require.ErrorContains(t, err, "at sequence 1 is not readable")
	require.NoError(t, js.DeleteStream(t.Context(), wire.ReceiptStream("w")))
	_, err = r.Lookup(t.Context(), at("2"), 0)
	require.ErrorContains(t, err, "cannot look up "+key("2"))
}

// A receipt is the last message of its key, lives as long as the retention, and is derived: an
// unreplicated stream is persisted asynchronously, a replicated one cannot be.
func TestStreamConfig(t *testing.T) {
	t.Parallel()
	single, replicated := StreamConfig("w", time.Minute, 1), StreamConfig("w", time.Minute, 3)
	require.Equal(t, jetstream.AsyncPersistMode, single.PersistMode)
	require.True(t, single.AllowDirect)
	require.Equal(t, jetstream.DefaultPersistMode, replicated.PersistMode)
	require.False(t, replicated.AllowDirect, "a follower's copy may be behind its leader")
	require.Equal(t, 3, replicated.Replicas)
	require.Equal(t, time.Minute, single.MaxAge)
	require.Equal(t, int64(1), single.MaxMsgsPerSubject)
	require.Equal(t, 1, single.Replicas)
	require.Equal(t, time.Second, single.Duplicates, "a follower may repeat what it wrote")
	require.Equal(t, time.Millisecond, StreamConfig("w", time.Millisecond, 1).Duplicates,
		"NATS refuses a window that is longer than what it keeps")
}
