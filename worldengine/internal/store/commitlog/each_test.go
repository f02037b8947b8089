package commitlog

import (
	"context"
	"fmt"
	"testing"

	"github.com/nats-io/nats.go/jetstream"
	"github.com/stretchr/testify/require"

	"worldengine/worldengine/internal/testkit/natstest"
)

// In a cluster a consumer may be at a replica behind the leader. It delivers that replica's
// messages, and waits longer for the rest than a check waits for one batch.
func TestScanMessages_LaggingReplica(t *testing.T) {
	t.Parallel()
	js, stream := makeStream(t, "s.>")
	const messages = 20
	for i := range messages {
		_, err := js.Publish(t.Context(), fmt.Sprint("s.", i), []byte{byte(i)})
		require.NoError(t, err)
	}

	lagging := &laggingReplica{Stream: stream, consumers: 2*fetchTries + 1, has: 3}
	var read []byte
	require.NoError(t, ScanMessages(t.Context(), lagging, 1<<20,
		func(m *jetstream.RawStreamMsg) error {
			read = append(read, m.Data...)
			require.EqualValues(t, len(read), m.Sequence)
			return nil
		}))
	require.Len(t, read, messages)
	require.Zero(t, lagging.consumers, "the replica has caught up meanwhile")
	info, err := stream.Info(t.Context())
	require.NoError(t, err)
	require.Zero(t, info.State.Consumers, "it leaves no consumer behind")
}

// A reading ends soon after its context, however much there is to read.
func TestScanHeaders_Canceled(t *testing.T) {
	t.Parallel()
	js, stream := makeStream(t, "S")
	for range fetchMessages + 1 {
		_, err := js.PublishAsync("S", nil)
		require.NoError(t, err)
	}
	<-js.PublishAsyncComplete()
	ctx, cancel := context.WithCancel(t.Context())
	read := 0
	_, err := ScanHeaders(ctx, stream, 0, func(*jetstream.RawStreamMsg) error {
		cancel()
		read++
		return nil
	})
	require.ErrorIs(t, err, ErrLogUnavailable)
	require.ErrorIs(t, err, context.Canceled)
	require.LessOrEqual(t, read, fetchMessages)
}

// makeStream makes a stream with the messages of a subject.
func makeStream(t *testing.T, subject string) (jetstream.JetStream, jetstream.Stream) {
	t.Helper()
	js, err := jetstream.New(natstest.Connect(t))
	require.NoError(t, err)
	stream, err := js.CreateStream(t.Context(), jetstream.StreamConfig{
		Name: "S", Subjects: []string{subject},
	})
	require.NoError(t, err)
	return js, stream
}

// laggingReplica is a stream whose next consumers count on all messages, and deliver only the first
// ones.
type laggingReplica struct {
	jetstream.Stream
	consumers int
	has       uint64
}

func (s *laggingReplica) CreateConsumer(
	ctx context.Context, config jetstream.ConsumerConfig,
) (jetstream.Consumer, error) {
	if s.consumers == 0 {
		return s.Stream.CreateConsumer(ctx, config)
	}
	s.consumers--
	made, err := s.Stream.CreateConsumer(ctx, config)
	return &laggingConsumer{Consumer: made, delivers: int(s.has) - int(config.OptStartSeq) + 1}, err
}

type laggingConsumer struct {
	jetstream.Consumer
	delivers int
}

func (c *laggingConsumer) Fetch(
	batch int, opts ...jetstream.FetchOpt,
) (jetstream.MessageBatch, error) {
	if c.delivers > 0 {
		batch = min(batch, c.delivers)
		c.delivers -= batch
		return c.Consumer.Fetch(batch, opts...)
	}
	return nothing{}, nil
}

// nothing is a batch that ended without a message.
type nothing struct{}

func (nothing) Messages() <-chan jetstream.Msg {
	none := make(chan jetstream.Msg)
	close(none)
	return none
}

func (nothing) Error() error { return nil }
