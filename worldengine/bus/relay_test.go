package bus

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
func TestChain_Link(t *testing.T) {
	t.Parallel()
	event := func(id string) *nats.Msg {
		return &nats.Msg{Header: nats.Header{jetstream.MsgIDHeader: {id}}}
	}
	for replicated, before := range map[bool][]string{false: {"a"}, true: nil} {
		first, second := event("a"), event("b")
		end := chain{seq: 40, replicated: replicated}.link(first, place{7, 0})
		end = end.link(second, place{7, 1})
		require.Equal(t, chain{seq: 42, at: place{7, 1}, id: "b", replicated: replicated}, end)
		require.Equal(t, nats.Header{jetstream.MsgIDHeader: {"a"}, "Log-Seq": {"7"},
			"Log-Part": {"0"}, jetstream.ExpectedLastSeqHeader: {"40"}}, first.Header)
		require.Equal(t, before, second.Header[jetstream.ExpectedLastMsgIDHeader])
		require.Equal(t, []string{"41"}, second.Header[jetstream.ExpectedLastSeqHeader])
	}
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

// An ack with another sequence is another message's: a faster sink's, or an event's that the stream
// has lost since. A gap in the log's messages ends a try too.
func TestRelay_Doubts(t *testing.T) {
	t.Parallel()
	acks := make(chan *jetstream.PubAck, 1)
	r := relay{Sink: &Sink{}, logSeq: 9, sent: []delivery{{future: future{ack: acks}, seq: 5}}}
	acks <- &jetstream.PubAck{Sequence: 4, Duplicate: true}
	require.ErrorIs(t, r.settle(t.Context()), errRace)
	require.False(t, r.progress)
	acks <- &jetstream.PubAck{Sequence: 5}
	require.NoError(t, r.settle(t.Context()))
	require.True(t, r.progress)
	require.Equal(t, uint64(9), r.Position())
	require.ErrorIs(t, r.publish(t.Context(), skipped{}), errGap)
}

// JetStream has several answers to a guard that does not hold, and others to its own trouble.
func TestRelay_Races(t *testing.T) {
	t.Parallel()
	for code, want := range map[jetstream.ErrorCode]bool{
		10070: true, 10071: true, 10158: true, 10164: true, 10077: false, 10008: false,
	} {
		err := fmt.Errorf("wrapped: %w", &jetstream.APIError{ErrorCode: code})
		require.Equal(t, want, isRace(err), "%d", code)
	}
	require.False(t, isRace(errors.New("other")))
}
