package commitlog

import (
	"bytes"
	"fmt"
	"slices"
	"testing"

	"github.com/nats-io/nats.go/jetstream"
	"github.com/stretchr/testify/require"

	"worldengine/worldengine/natstest"
)

// Several messages of a stream are read at once, as they would be one by one.
func TestNextBatch(t *testing.T) {
	t.Parallel()
	js, err := jetstream.New(natstest.Connect(t))
	require.NoError(t, err)
	for _, direct := range []bool{true, false} {
		name := fmt.Sprint("S", direct)
		stream, err := js.CreateStream(t.Context(), jetstream.StreamConfig{
			Name: name, Subjects: []string{name}, AllowDirect: direct,
		})
		require.NoError(t, err)
		var want []*jetstream.RawStreamMsg
		for i := range 30 {
			ack, err := js.Publish(t.Context(), name, bytes.Repeat([]byte{'0' + byte(i)}, i*i*200))
			require.NoError(t, err)
			if i%3 == 1 {
				require.NoError(t, stream.DeleteMsg(t.Context(), ack.Sequence))
				continue
			}
			msg, err := stream.GetMsg(t.Context(), ack.Sequence)
			require.NoError(t, err)
			want = append(want, msg)
		}
		for _, from := range []uint64{1, 2, 3, 4, 15, 16, 17, 29, 30, 31} {
			for _, most := range []int{1, 2, 5, 100} {
				var got []*jetstream.RawStreamMsg
				for next := from; ; next = got[len(got)-1].Sequence + 1 {
					batch, err := NextBatch(t.Context(), js, stream, next, most)
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
		require.NoError(t, js.DeleteStream(t.Context(), name))
		_, err = NextBatch(t.Context(), js, stream, 1, 10)
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
		require.Equal(t, want[i].Data, got[i].Data)
	}
}
