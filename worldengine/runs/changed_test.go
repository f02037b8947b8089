package runs

import (
	"fmt"
	"strconv"
	"testing"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
	"github.com/stretchr/testify/require"

	"worldengine/worldengine/natstest"
	"worldengine/worldengine/wire"
)

// Where a list behind a mark begins is found with messages missing, and with some that no follower
// made.
func TestWhereAListBehindAMarkBegins(t *testing.T) {
	t.Parallel()
	js, err := jetstream.New(natstest.Connect(t))
	require.NoError(t, err)
	stream, err := js.CreateStream(t.Context(), jetstream.StreamConfig{
		Name: wire.EventStream("main"), Subjects: []string{wire.EventSubject("main", "*", "*")},
		Storage: jetstream.MemoryStorage,
	})
	require.NoError(t, err)
	marks := map[uint64]uint64{} // of the messages that are left and tell theirs, by sequence
	for i := range uint64(60) {
		msg := nats.NewMsg(wire.EventSubject("main", "t", fmt.Sprint("run-", i)))
		mark := 10 + i/3*2 // several of one log message, and gaps
		if stray := i%7 == 2 || i > 40 && i < 45; !stray {
			msg.Header.Set(wire.LogSeqHeader, strconv.FormatUint(mark, 10))
			marks[i+1] = mark
		}
		_, err := js.PublishMsg(t.Context(), msg)
		require.NoError(t, err)
		if i%5 == 0 {
			require.NoError(t, stream.DeleteMsg(t.Context(), i+1))
			delete(marks, i+1)
		}
	}
	s := New(nil, stream, Config{World: "main"})
	for mark := range uint64(60) {
		behind, err := s.changedAfter(t.Context(), &RunFilter{AfterMark: &mark})
		require.NoError(t, err)
		for seq, at := range marks {
			require.Equal(t, at > mark, seq >= behind.from, "mark %d, message %d", mark, seq)
		}
	}
}
