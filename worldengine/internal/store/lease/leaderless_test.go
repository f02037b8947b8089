package lease_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
	"github.com/stretchr/testify/require"

	"worldengine/worldengine/internal/kit/layout"
	"worldengine/worldengine/internal/store/lease"
	"worldengine/worldengine/internal/testkit/natstest"
)

// leaderless is a JetStream in which one bucket gives no answer once it is away, as one that has no
// leader. It counts how often the other buckets are looked up.
type leaderless struct {
	jetstream.JetStream
	bucket  string
	away    atomic.Bool
	lookups atomic.Int64
	tries   atomic.Int64 // renewals to the bucket that is away
}

// unanswered is the future of a message that is never acknowledged.
type unanswered struct{ msg *nats.Msg }

func (u unanswered) Ok() <-chan *jetstream.PubAck { return nil }
func (u unanswered) Err() <-chan error            { return nil }
func (u unanswered) Msg() *nats.Msg               { return u.msg }

func (l *leaderless) PublishMsgAsync(
	msg *nats.Msg, options ...jetstream.PublishOpt,
) (jetstream.PubAckFuture, error) {
	if l.away.Load() && strings.Contains(msg.Subject, l.bucket) {
		l.tries.Add(1)
		return unanswered{msg}, nil
	}
	return l.JetStream.PublishMsgAsync(msg, options...)
}

func (l *leaderless) KeyValue(ctx context.Context, bucket string) (jetstream.KeyValue, error) {
	switch {
	case l.away.Load() && bucket == l.bucket:
		<-ctx.Done()
		return nil, errors.Join(ctx.Err(), jetstream.ErrNoStreamResponse)
	case l.away.Load():
		l.lookups.Add(1)
	}
	return l.JetStream.KeyValue(ctx, bucket)
}

// A bucket without a leader costs its own lease alone: the others are renewed as ever, by one message
// each.
func TestKeeper_Leaderless(t *testing.T) {
	t.Parallel()
	nc := natstest.Connect(t)
	plain, err := jetstream.New(nc)
	require.NoError(t, err)
	js := &leaderless{JetStream: plain, bucket: layout.WriterBucket("w0")}
	keeper := lease.NewKeeper(js)
	var all []*lease.Lease
	for i := range 20 {
		l := newLease(t, nc.ConnectedUrl())
		l.JetStream, l.World, l.Keeper = js, fmt.Sprint("w", i), keeper
		all = append(all, try(t, l))
	}
	js.away.Store(true)
	requireLost(t, all[0])
	for i, held := range all[1:] {
		require.True(t, held.Valid(), "world %d", i+1)
	}
	require.Zero(t, js.lookups.Load(), "healthy leases are acquired again, instead of renewed")
	require.LessOrEqual(t, js.tries.Load(), int64(1), "the others wait for it once")
	js.away.Store(false)
}
