package lease_test

import (
	"context"
	"fmt"
	"log/slog"
	"sync"
	"testing"
	"time"

	natsserver "github.com/nats-io/nats-server/v2/server"
	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
	"github.com/nats-io/nuid"
	"github.com/stretchr/testify/require"

	"worldengine/worldengine/internal/kit/layout"
	"worldengine/worldengine/internal/store/lease"
	"worldengine/worldengine/internal/testkit/natstest"
)

func TestMain(m *testing.M) { natstest.Main(m, 8) }

// newLease returns the lease of the world main for one more server.
func newLease(t *testing.T, url string) *lease.Elector {
	t.Helper()
	nc := natstest.Dial(t, url, nats.MaxReconnects(-1), nats.ReconnectWait(20*time.Millisecond))
	js, err := jetstream.New(nc)
	require.NoError(t, err)
	return &lease.Elector{JetStream: js, World: "main", Holder: nuid.Next(),
		Logger: slog.New(slog.DiscardHandler), Keeper: lease.NewKeeper(js)}
}

func try(t *testing.T, l *lease.Elector) *lease.Lease {
	t.Helper()
	held, err := l.Try(t.Context())
	require.NoError(t, err)
	require.True(t, held.Valid())
	t.Cleanup(func() { held.Release(context.Background()) })
	return held
}

// testTimeout bounds what happens in seconds, on a machine that is busy too.
const testTimeout = time.Minute

func requireLost(t *testing.T, held *lease.Lease) {
	t.Helper()
	select {
	case <-held.Lost():
	case <-time.After(testTimeout):
		require.Fail(t, "the lease is not lost")
	}
	require.False(t, held.Valid())
}

func TestLease_GivenBack(t *testing.T) {
	t.Parallel()
	url := natstest.Connect(t).ConnectedUrl()
	first, second, third := newLease(t, url), newLease(t, url), newLease(t, url)
	requireHolder := func(want string) {
		t.Helper()
		holder, err := third.CurrentHolder(t.Context())
		require.NoError(t, err)
		require.Equal(t, want, holder)
	}
	requireHolder("")
	held := try(t, first)
	requireHolder(first.Holder)
	_, err := second.Try(t.Context())
	require.ErrorIs(t, err, lease.ErrHeld)

	waited := make(chan *lease.Lease, 1)
	go func() {
		held, err := second.Acquire(t.Context())
		if err == nil {
			waited <- held
		}
	}()
	select {
	case <-waited:
		require.Fail(t, "the lease is held twice")
	case <-time.After(lease.DefaultTTL + time.Second): // it is renewed
	}
	require.True(t, held.Valid())
	held.Release(t.Context())
	holder, err := third.CurrentHolder(t.Context()) // before it would expire
	require.NoError(t, err)
	require.NotEqual(t, first.Holder, holder)
	requireLost(t, held)
	select {
	case held = <-waited:
	case <-time.After(testTimeout):
		require.Fail(t, "nobody acquires the lease")
	}
	_, err = first.Try(t.Context())
	require.ErrorIs(t, err, lease.ErrHeld)
	held.Release(t.Context())
	held.Release(t.Context())
}

// The renewal that Release interrupts may have reached NATS.
func TestLease_GivenBackDuringRenewal(t *testing.T) {
	t.Parallel()
	url := natstest.Connect(t).ConnectedUrl()
	first, again := newLease(t, url), newLease(t, url)
	again.Holder = first.Holder
	held := try(t, first)
	try(t, again)
	held.Release(t.Context())
	try(t, newLease(t, url))
}

func TestLease_AtOnce(t *testing.T) {
	t.Parallel()
	url := natstest.Connect(t).ConnectedUrl()
	var all sync.WaitGroup
	got := make(chan *lease.Lease, 8)
	for range cap(got) {
		l := newLease(t, url)
		all.Go(func() {
			if held, err := l.Try(t.Context()); err == nil {
				got <- held
			}
		})
	}
	all.Wait()
	require.Len(t, got, 1)
	(<-got).Release(t.Context())
}

func TestLease_Seized(t *testing.T) {
	t.Parallel()
	url := natstest.Connect(t).ConnectedUrl()
	held := try(t, newLease(t, url))
	seized, err := newLease(t, url).Seize(t.Context())
	require.NoError(t, err)
	defer seized.Release(t.Context())
	requireLost(t, held)
	require.True(t, seized.Valid())
}

// Without a bucket the holder makes one, unless another server was faster; never do both hold it.
func TestLease_BucketDeleted(t *testing.T) {
	t.Parallel()
	nc := natstest.Connect(t)
	js, err := jetstream.New(nc)
	require.NoError(t, err)
	held := try(t, newLease(t, nc.ConnectedUrl()))
	other := newLease(t, nc.ConnectedUrl())
	require.NoError(t, js.DeleteKeyValue(t.Context(), layout.WriterBucket("main")))
	require.Eventually(t, func() bool {
		bucket, err := js.KeyValue(t.Context(), layout.WriterBucket("main"))
		if err == nil {
			_, err = bucket.Get(t.Context(), "writer")
		}
		return err == nil
	}, testTimeout, 10*time.Millisecond, "the holder makes it again, and puts its key in")
	_, err = other.Try(t.Context())
	require.ErrorIs(t, err, lease.ErrHeld)
	require.True(t, held.Valid())

	require.NoError(t, js.DeleteKeyValue(t.Context(), layout.WriterBucket("main")))
	taken, err := other.Acquire(t.Context())
	require.NoError(t, err)
	defer taken.Release(t.Context())
	select {
	case <-held.Lost(): // or else its revision was by chance the one in the new bucket
	case <-taken.Lost():
	case <-time.After(testTimeout):
		require.Fail(t, "the lease is held twice")
	}
	require.NotEqual(t, held.Valid(), taken.Valid())
}

// Without answers of NATS the lease ends exactly at its expiry.
func TestLease_NATSAway(t *testing.T) {
	t.Parallel()
	options := &natsserver.Options{JetStream: true, StoreDir: t.TempDir()}
	ns := natstest.Run(t, options)
	l := newLease(t, ns.ClientURL())
	began := time.Now()
	held := try(t, l)
	natstest.Stop(ns)
	stopped := time.Now()
	select {
	case <-held.Lost():
		require.GreaterOrEqual(t, time.Since(began), lease.DefaultTTL)
	case <-time.After(time.Until(stopped.Add(lease.DefaultTTL))): // no renewal was later than that
		require.False(t, held.Valid())
	}
	requireLost(t, held)

	natstest.Start(t, options)
	ctx, cancel := context.WithTimeout(t.Context(), testTimeout)
	defer cancel()
	again, err := l.Acquire(ctx)
	require.NoError(t, err)
	require.True(t, again.Valid())
	again.Release(t.Context())
}

// A NATS that comes back in time costs nothing, even without the bucket, which was in its memory.
func TestLease_NATSRestarts(t *testing.T) {
	t.Parallel()
	options := &natsserver.Options{JetStream: true, StoreDir: t.TempDir()}
	ns := natstest.Run(t, options)
	t.Cleanup(func() { natstest.Stop(ns) })
	l, other := newLease(t, ns.ClientURL()), newLease(t, ns.ClientURL())
	var held *lease.Lease
	var stopped time.Time
	for range 10 { // a busy machine may start it too late
		held = try(t, l)
		stopped = time.Now()
		natstest.Stop(ns)
		ns = natstest.Run(t, options)
		if time.Since(stopped) < lease.DefaultTTL/2 {
			break
		}
		held.Release(t.Context())
	}
	select {
	case <-held.Lost():
		require.Fail(t, "the lease is lost")
	case <-time.After(time.Until(stopped.Add(lease.DefaultTTL + 500*time.Millisecond))):
	}
	_, err := other.Try(t.Context())
	require.ErrorIs(t, err, lease.ErrHeld)
	held.Release(t.Context()) // while NATS is there
}

// One keeper renews the leases of many worlds. A lease that another server has seized, or whose bucket
// is gone, is no trouble for the others.
func TestKeeper_ManyWorlds(t *testing.T) {
	t.Parallel()
	const worlds = 30
	nc := natstest.Connect(t)
	js, err := jetstream.New(nc)
	require.NoError(t, err)
	keeper := lease.NewKeeper(js)
	var all []*lease.Lease
	for i := range worlds {
		l := newLease(t, nc.ConnectedUrl())
		l.JetStream, l.World, l.Keeper = js, fmt.Sprint("w", i), keeper
		all = append(all, try(t, l))
	}
	other := newLease(t, nc.ConnectedUrl())
	other.World = "w3"
	seized, err := other.Seize(t.Context())
	require.NoError(t, err)
	defer seized.Release(context.Background())
	require.NoError(t, js.DeleteKeyValue(t.Context(), layout.WriterBucket("w4")))
	requireLost(t, all[3])
	for until := time.Now().Add(lease.DefaultTTL + time.Second); time.Now().Before(until); {
		for i, held := range all {
			if i != 3 && i != 4 {
				require.True(t, held.Valid(), "world %d", i)
			}
		}
		time.Sleep(10 * time.Millisecond)
	}
	require.Eventually(t, all[4].Valid, testTimeout, 10*time.Millisecond)
	for _, held := range all {
		held.Release(t.Context())
		requireLost(t, held)
	}
	_, err = js.KeyValue(t.Context(), layout.WriterBucket("w4"))
	require.NoError(t, err, "the holder makes the bucket again")
	again := newLease(t, nc.ConnectedUrl())
	again.World, again.Keeper = "w0", keeper
	require.True(t, try(t, again).Valid(), "a keeper without leases goes on with the next one")
}

// uncertain is a JetStream in an election: a bucket's value cannot be read, or a deposed leader refuses its update.
type uncertain struct {
	jetstream.JetStream
	get, update error
}

func (u *uncertain) KeyValue(ctx context.Context, name string) (jetstream.KeyValue, error) {
	bucket, err := u.JetStream.KeyValue(ctx, name)
	return &uncertainBucket{bucket, u}, err
}

type uncertainBucket struct {
	jetstream.KeyValue
	*uncertain
}

func (b *uncertainBucket) Get(ctx context.Context, key string) (jetstream.KeyValueEntry, error) {
	if b.get != nil {
		return nil, b.get
	}
	return b.KeyValue.Get(ctx, key)
}

func (b *uncertainBucket) Update(ctx context.Context, key string, value []byte, last uint64) (uint64, error) {
	if b.update != nil {
		return 0, b.update
	}
	return b.KeyValue.Update(ctx, key, value, last)
}

// A server that has the lease does not take it for another's if it cannot read it, or its renewal is refused.
func TestElector_Uncertain(t *testing.T) {
	t.Parallel()
	url := natstest.Connect(t).ConnectedUrl()
	first, again := newLease(t, url), newLease(t, url)
	again.Holder = first.Holder
	js := &uncertain{JetStream: again.JetStream}
	again.JetStream = js
	try(t, first)
	js.get = &jetstream.APIError{Code: 503, ErrorCode: 10008}
	_, err := again.Try(t.Context())
	require.Error(t, err)
	require.NotErrorIs(t, err, lease.ErrHeld)
	js.get, js.update = nil, &jetstream.APIError{ErrorCode: jetstream.JSErrCodeStreamWrongLastSequence}
	_, err = again.Try(t.Context())
	require.Error(t, err)
	require.NotErrorIs(t, err, lease.ErrHeld)
	js.update = nil
	try(t, again)
}
