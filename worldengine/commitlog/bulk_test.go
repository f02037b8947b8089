package commitlog

import (
	"bytes"
	"fmt"
	"testing"

	"github.com/nats-io/nats.go/jetstream"
	"github.com/stretchr/testify/require"

	"worldengine/worldengine/natstest"
)

// Several messages of a subject are read at once, as they would be one by one.
func TestNextStoredBatch(t *testing.T) {
	t.Parallel()
	js, err := jetstream.New(natstest.Connect(t))
	require.NoError(t, err)
	for _, direct := range []bool{true, false} {
		name := fmt.Sprint("S", direct)
		stream, err := js.CreateStream(t.Context(), jetstream.StreamConfig{
			Name: name, Subjects: []string{name + ".>"}, AllowDirect: direct,
		})
		require.NoError(t, err)
		var want []*jetstream.RawStreamMsg
		for i := range 30 {
			subject := name + "." + []string{"a", "b", "c"}[i%3]
			ack, err := js.Publish(t.Context(), subject,
				bytes.Repeat([]byte{'0' + byte(i)}, i*i*200))
			require.NoError(t, err)
			if i%3 == 1 {
				msg, err := stream.GetMsg(t.Context(), ack.Sequence)
				require.NoError(t, err)
				want = append(want, msg)
			}
		}
		for _, from := range []uint64{0, 1, 2, 3, 4, 15, 16, 17, 29, 30, 31} {
			for _, most := range []int{1, 2, 5, 100} {
				var got []*jetstream.RawStreamMsg
				for next := from; ; next = got[len(got)-1].Sequence + 1 {
					batch, err := NextStoredBatch(t.Context(), js, stream, name+".b", next, most)
					require.NoError(t, err)
					require.LessOrEqual(t, len(batch), most)
					if len(batch) == 0 {
						break
					}
					got = append(got, batch...)
				}
				requireSame(t, want[min((max(from, 2)-2+2)/3, 10):], got)
			}
		}
		none, err := NextStoredBatch(t.Context(), js, stream, name+".none", 1, 10)
		require.NoError(t, err)
		require.Empty(t, none)
		require.NoError(t, js.DeleteStream(t.Context(), name))
		_, err = NextStoredBatch(t.Context(), js, stream, name+".b", 1, 10)
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
