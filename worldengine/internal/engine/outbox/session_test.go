package outbox

import (
	"errors"
	"fmt"
	"testing"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
	"github.com/stretchr/testify/require"
)

// Each event names its place and the end of the stream before it: by its sequence, and by the id of
// the event before it, which a replicated stream cannot check.
func TestSession_Guard(t *testing.T) {
	t.Parallel()
	for replicas, id := range map[int][]string{1: {"a"}, 3: nil} {
		r := session{stream: stored{replicas: replicas}, start: streamEnd{last: 40}}
		for last, want := range map[uint64][]string{40: nil, 41: id} {
			event := &nats.Msg{Header: nats.Header{}}
			r.end = streamEnd{last: last, id: "a"}
			r.setGuard(event, logPosition{7, 2})
			require.Equal(t, want, event.Header[jetstream.ExpectedLastMsgIDHeader])
			delete(event.Header, jetstream.ExpectedLastMsgIDHeader)
			require.Equal(t, nats.Header{"Log-Seq": {"7"}, "Log-Part": {"2"},
				jetstream.ExpectedLastSeqHeader: {fmt.Sprint(last)}}, event.Header)
		}
	}
}

// stored is a stream with replicas.
type stored struct {
	jetstream.Stream
	replicas int
}

func (s stored) CachedInfo() *jetstream.StreamInfo {
	return &jetstream.StreamInfo{Config: jetstream.StreamConfig{Replicas: s.replicas}}
}

// future is an event that was answered.
type future struct {
	jetstream.PubAckFuture
	ack chan *jetstream.PubAck
}

func (f future) Ok() <-chan *jetstream.PubAck { return f.ack }
func (f future) Err() <-chan error            { return nil }

// skipped is the third message of a consumer.
type skipped struct{ jetstream.Msg }

func (skipped) Subject() string      { return "" }
func (skipped) Headers() nats.Header { return nil }
func (skipped) Data() []byte         { return nil }
func (skipped) Metadata() (*jetstream.MsgMetadata, error) {
	return &jetstream.MsgMetadata{Sequence: jetstream.SequencePair{Consumer: 3}}, nil
}

// A try ends if an ack has another sequence, since it is of another relay's message or of one that the
// stream has lost since; and if messages of the log are missing.
func TestSession_Doubts(t *testing.T) {
	t.Parallel()
	acks := make(chan *jetstream.PubAck, 1)
	r := session{Relay: &Relay{}, logSeq: 9, sent: []inFlight{{future: future{ack: acks}, seq: 5}}}
	acks <- &jetstream.PubAck{Sequence: 4, Duplicate: true}
	require.ErrorIs(t, r.awaitAcks(t.Context()), errRace)
	require.False(t, r.progress)
	acks <- &jetstream.PubAck{Sequence: 5}
	require.NoError(t, r.awaitAcks(t.Context()))
	require.True(t, r.progress)
	require.Equal(t, uint64(9), r.Position())
	require.ErrorIs(t, r.publish(t.Context(), skipped{}), errGap)
}

// JetStream has several error codes for a broken guard.
func TestSession_Races(t *testing.T) {
	t.Parallel()
	for code, want := range map[jetstream.ErrorCode]bool{
		10070: true, 10071: true, 10158: true, 10164: true, 10077: false, 10008: false,
	} {
		err := fmt.Errorf("wrapped: %w", &jetstream.APIError{ErrorCode: code})
		require.Equal(t, want, isRace(err), "%d", code)
	}
	require.False(t, isRace(errors.New("other")))
}
