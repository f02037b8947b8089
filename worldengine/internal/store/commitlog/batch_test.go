package commitlog

import (
	"bytes"
	"slices"
	"testing"

	"github.com/nats-io/nats.go/jetstream"
	"github.com/stretchr/testify/require"
)

// Several messages of a stream are read at once, as they would be one by one.
func TestNextBatch(t *testing.T) {
	t.Parallel()
	js, stream := makeStream(t, "S")
	var want []*jetstream.RawStreamMsg
	for i := range 60 {
		ack, err := js.Publish(t.Context(), "S", bytes.Repeat([]byte{'0' + byte(i)}, i*i*100))
		require.NoError(t, err)
		if i%3 == 1 {
			require.NoError(t, stream.DeleteMsg(t.Context(), ack.Sequence))
			continue
		}
		msg, err := stream.GetMsg(t.Context(), ack.Sequence)
		require.NoError(t, err)
		want = append(want, msg)
	}
	for _, from := range []uint64{1, 2, 3, 4, 15, 16, 17, 59, 60, 61} {
		for _, most := range []int{1, 2, 5, fewMessages + 1, 100} {
			var got []*jetstream.RawStreamMsg
			for next := from; ; next = got[len(got)-1].Sequence + 1 {
				batch, err := NextBatch(t.Context(), stream, next, most)
				require.NoError(t, err)
				require.LessOrEqual(t, len(batch), most)
				if len(batch) == 0 {
					break
				}
				got = append(got, batch...)
			}
			first := slices.IndexFunc(want, func(m *jetstream.RawStreamMsg) bool {
				return m.Sequence >= from
			})
			if first < 0 {
				first = len(want)
			}
			requireSame(t, want[first:], got)
		}
	}
	require.NoError(t, js.DeleteStream(t.Context(), "S"))
	for _, most := range []int{1, 100} {
		_, err := NextBatch(t.Context(), stream, 1, most)
		require.ErrorIs(t, err, ErrLogUnavailable)
	}
}

func requireSame(t *testing.T, want, got []*jetstream.RawStreamMsg) {
	t.Helper()
	require.Len(t, got, len(want))
	for i := range want {
		require.Equal(t, want[i].Sequence, got[i].Sequence)
		require.Equal(t, want[i].Time, got[i].Time)
		require.Equal(t, want[i].Subject, got[i].Subject)
		require.Equal(t, string(want[i].Data), string(got[i].Data))
	}
}
