package dedupe

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	"github.com/nats-io/nats.go/jetstream"
	"github.com/stretchr/testify/require"

	"worldengine/worldengine/wire"
)

// describedStream is a stream that only says when it was made, and counts how often it is asked.
type describedStream struct {
	jetstream.Stream
	created time.Time
	asked   int
}

func (s *describedStream) Info(
	context.Context, ...jetstream.StreamInfoOpt,
) (*jetstream.StreamInfo, error) {
	s.asked++
	return &jetstream.StreamInfo{Created: s.created}, nil
}

// A lookup trusts what was known of the stream half of RecreateAfter ago. From then on one lookup
// asks and the others go by what is known; after RecreateAfter each one asks.
func TestWhenTheStreamIsAskedWhichOneItIs(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		name       string
		age        time.Duration
		othersAsk  bool
		alone      int
		besideThem int
	}{
		{"just seen", RecreateAfter/2 - 1, true, 0, 0},
		{"seen a while ago", RecreateAfter / 2, true, 1, 0},
		{"seen less than RecreateAfter ago", RecreateAfter - 1, true, 1, 0},
		{"seen RecreateAfter ago", RecreateAfter, true, 1, 1},
	} {
		synctest.Test(t, func(t *testing.T) {
			for _, others := range []bool{false, true} {
				stream := &describedStream{created: time.Now()}
				r := &Receipts{stream: stream, created: stream.created, seen: time.Now()}
				time.Sleep(c.age)
				want := c.alone
				if others {
					want = c.besideThem
					r.asking.Lock()
				}
				require.NoError(t, r.confirm(t.Context()), c.name)
				require.Equal(t, want, stream.asked, "%s, others ask: %v", c.name, others)
				if want == 1 {
					require.Zero(t, r.age(), "it was seen now: %s", c.name)
				}
				if !others {
					require.True(t, r.asking.TryLock(), "the next one may ask: %s", c.name)
				}
			}
		})
	}
}

// A stream that was deleted and made again has none of the receipts that were followed: no key is
// free by it before it was followed again, which the engine is told.
func TestTheStreamIsAnotherOne(t *testing.T) {
	t.Parallel()
	r, js := newReceipts(t)
	replaced := 0
	r.replaced = func() { replaced++ }
	none, err := r.Lookup(t.Context(), at("1"), 0)
	require.NoError(t, err)
	require.Nil(t, none)
	require.Zero(t, r.Losses())

	require.NoError(t, js.DeleteStream(t.Context(), wire.ReceiptStream("w")))
	r.seen = time.Time{}
	_, err = r.Lookup(t.Context(), at("1"), 0)
	require.ErrorIs(t, err, jetstream.ErrStreamNotFound)
	require.Zero(t, replaced, "a stream that does not answer is not known to be another one")

	_, err = js.CreateStream(t.Context(), StreamConfig("w", time.Hour, 1))
	require.NoError(t, err)
	_, err = r.Lookup(t.Context(), at("1"), 0)
	require.ErrorIs(t, err, ErrReplaced)
	require.Equal(t, 1, replaced)
	require.Equal(t, 1, r.Losses())

	none, err = r.Lookup(t.Context(), at("1"), 0)
	require.NoError(t, err, "the new stream is the one that is followed now")
	require.Nil(t, none)
	require.Equal(t, 1, replaced)
	require.Equal(t, 1, r.Losses())
}

// silentStream has no message, and answers only after a while.
type silentStream struct {
	describedStream
	answersAfter time.Duration
}

func (s *silentStream) GetLastMsgForSubject(
	context.Context, string,
) (*jetstream.RawStreamMsg, error) {
	time.Sleep(s.answersAfter)
	return nil, jetstream.ErrMsgNotFound
}

// An answer that took RecreateAfter may be that of a stream made in the meantime: it leaves no key
// free.
func TestALateNoIsNone(t *testing.T) {
	t.Parallel()
	for after, want := range map[time.Duration]error{
		RecreateAfter - 1: nil, RecreateAfter: ErrReplaced,
	} {
		synctest.Test(t, func(t *testing.T) {
			stream := &silentStream{describedStream{created: time.Now()}, after}
			r := &Receipts{stream: stream, created: stream.created}
			receipt, err := r.Lookup(t.Context(), at("1"), 0)
			require.ErrorIs(t, err, want)
			require.Nil(t, receipt)
		})
	}
}
