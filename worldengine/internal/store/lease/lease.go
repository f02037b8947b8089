// Package lease elects the writer of a world: the one server of several that judges, commits and
// answers. The lease is a key in the NATS bucket layout.WriterBucket, with its holder as the value
// and a time to live. Commits are safe without it, by the log's guards: the lease only saves servers
// double work.
package lease

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"sync/atomic"
	"time"

	"github.com/nats-io/nats.go/jetstream"

	"worldengine/worldengine/internal/kit/backoff"
	"worldengine/worldengine/internal/kit/layout"
	"worldengine/worldengine/internal/store/commitlog"
)

// DefaultTTL is how long a lease lasts without renewal, unless its Elector has another TTL.
const DefaultTTL = 3 * time.Second

const (
	renewInterval = time.Second
	tryInterval   = 250 * time.Millisecond
	key           = "writer"
)

// ErrHeld means that another server has the lease. The lease may be free later.
var ErrHeld = errors.New("lease: another server of the world is its writer")

// Elector acquires the lease of a world for one server. Every exported member but TTL must be set. Only one
// goroutine may use it at a time, and none while the server has the lease.
type Elector struct {
	JetStream jetstream.JetStream
	World     string
	Holder    string // differs from server to server
	Replicas  int    // of the bucket; as many as the world's streams have
	Logger    *slog.Logger
	Keeper    *Keeper // renews the lease
	// TTL is how long the lease lasts without renewal; 0 for DefaultTTL. The world's servers have the same.
	TTL time.Duration

	bucket jetstream.KeyValue // nil before the first use, and if the bucket may be gone
}

func (e *Elector) ttl() time.Duration { return cmp.Or(e.TTL, DefaultTTL) }

// Acquire acquires the lease as soon as it is free. It tries every 250 ms, even if NATS does not
// answer. It returns an error only when ctx ends.
func (e *Elector) Acquire(ctx context.Context) (*Lease, error) {
	for {
		held, err := e.Try(ctx)
		if err == nil {
			return held, nil
		}
		if ctx.Err() == nil && !errors.Is(err, ErrHeld) {
			e.Logger.Warn("the writer's lease cannot be read; will try again", "error", err)
		}
		if err := backoff.Sleep(ctx, tryInterval); err != nil {
			return nil, err
		}
	}
}

// Try acquires the lease if it is free, and returns ErrHeld otherwise.
func (e *Elector) Try(ctx context.Context) (*Lease, error) { return e.acquire(ctx, e.claim) }

// CurrentHolder returns the Holder of the server that has the lease; "" if the lease is free.
func (e *Elector) CurrentHolder(ctx context.Context) (holder string, err error) {
	_, err = e.request(ctx, func(ctx context.Context) (uint64, error) {
		entry, err := e.bucket.Get(ctx, key)
		switch {
		case errors.Is(err, jetstream.ErrKeyNotFound):
			return 0, nil
		case err != nil:
			return 0, err
		}
		holder = string(entry.Value())
		return entry.Revision(), nil
	})
	return holder, err
}

// Seize acquires the lease even if another server has it, which then loses it.
func (e *Elector) Seize(ctx context.Context) (*Lease, error) {
	return e.acquire(ctx, func(ctx context.Context) (uint64, error) {
		return e.bucket.PutString(ctx, key, e.Holder)
	})
}

// acquire makes the request claim, and renews the lease from then on.
func (e *Elector) acquire(
	ctx context.Context, claim func(context.Context) (uint64, error),
) (*Lease, error) {
	asked := time.Now()
	revision, err := e.request(ctx, claim)
	if err != nil {
		return nil, err
	}
	l := &Lease{elector: e, lost: make(chan struct{})}
	l.renewed(asked, revision)
	e.Keeper.add(l)
	return l, nil
}

// request makes one request to the bucket, within the TTL. It creates a missing bucket.
func (e *Elector) request(
	ctx context.Context, do func(context.Context) (uint64, error),
) (revision uint64, err error) {
	ctx, cancel := context.WithTimeout(ctx, e.ttl())
	defer cancel()
	if e.bucket == nil {
		e.bucket, err = e.open(ctx)
	}
	if err == nil {
		revision, err = do(ctx)
	}
	switch {
	case err == nil:
		return revision, nil
	case errors.Is(err, jetstream.ErrKeyExists), commitlog.IsWrongLastSequence(err):
		return 0, ErrHeld
	}
	e.bucket = nil
	return 0, fmt.Errorf("lease: lease of the writer of the world %s: %w",
		e.World, err)
}

// open returns the bucket, creates it if it is missing, and never updates it: updates by several
// servers would keep a cluster from electing its leaders.
func (e *Elector) open(ctx context.Context) (jetstream.KeyValue, error) {
	name := layout.WriterBucket(e.World)
	bucket, err := e.JetStream.KeyValue(ctx, name)
	if !errors.Is(err, jetstream.ErrBucketNotFound) {
		return bucket, err
	}
	return e.JetStream.CreateKeyValue(ctx, jetstream.KeyValueConfig{
		Bucket:      name,
		Description: "Which server is the writer of the world " + e.World,
		TTL:         e.ttl(), Replicas: max(e.Replicas, 1),
		// If nodes of a cluster restart in turn, they may lose a bucket in memory for ever: a
		// restarted node has forgotten its votes.
		Storage: jetstream.FileStorage,
	})
}

// claim creates the key, or renews it if this server has it. Other errors than ErrKeyExists and a refused guard do not
// prove that another server has it.
func (e *Elector) claim(ctx context.Context) (uint64, error) {
	revision, err := e.bucket.Create(ctx, key, []byte(e.Holder))
	if !errors.Is(err, jetstream.ErrKeyExists) && !commitlog.IsWrongLastSequence(err) {
		return revision, err
	}
	entry, getErr := e.bucket.Get(ctx, key)
	switch {
	case errors.Is(getErr, jetstream.ErrKeyNotFound):
		return 0, err
	case getErr != nil:
		return 0, getErr
	case string(entry.Value()) != e.Holder:
		return 0, err
	}
	revision, err = e.bucket.Update(ctx, key, entry.Value(), entry.Revision())
	if commitlog.IsWrongLastSequence(err) { // another renewal of this server was stored, or a deposed leader answers
		err = fmt.Errorf("its renewal was refused, though this server has it: %v", err)
	}
	return revision, err
}

// Lease is a lease that this server has acquired. Valid and Lost are safe for concurrent use.
type Lease struct {
	elector *Elector
	lost    chan struct{}

	// The keeper guards these.
	nextRenewal   time.Time // of the next renewal
	renewing      bool      // a renewal is under way
	renewalFailed bool      // the last renewal
	dropped       bool      // the lease is renewed no more

	revision uint64                    // used by the renewal, and after lost is closed
	until    atomic.Pointer[time.Time] // with the monotonic clock; nil if the lease is over
}

// Valid reports whether this server still counts as the holder. It does not ask NATS, so a process
// that was suspended knows at once.
func (l *Lease) Valid() bool { return l.remaining() > 0 }

// Lost is closed when this server no longer counts as the holder, and by Release.
func (l *Lease) Lost() <-chan struct{} { return l.lost }

// remaining returns how long the lease lasts without renewal.
func (l *Lease) remaining() time.Duration {
	if until := l.until.Load(); until != nil {
		return time.Until(*until)
	}
	return 0
}

// renewed notes a renewal and when it was requested.
func (l *Lease) renewed(asked time.Time, revision uint64) {
	until := asked.Add(l.elector.ttl())
	l.revision = revision
	l.until.Store(&until)
}

// Release ends the lease, so that another server can acquire it at once. ctx bounds the wait for NATS.
// Release may be called again.
func (l *Lease) Release(ctx context.Context) {
	l.elector.Keeper.drop(l)
	<-l.lost
	if !l.Valid() {
		return
	}
	l.until.Store(nil)
	e := l.elector
	_, err := e.request(ctx, func(ctx context.Context) (uint64, error) {
		err := e.bucket.Delete(ctx, key, jetstream.LastRevision(l.revision))
		if !commitlog.IsWrongLastSequence(err) {
			return 0, err
		}
		revision, err := e.claim(ctx) // the last renewal may have got no answer
		if err != nil {
			return 0, err
		}
		return 0, e.bucket.Delete(ctx, key, jetstream.LastRevision(revision))
	})
	if err != nil && !errors.Is(err, ErrHeld) {
		l.elector.Logger.Warn("the writer's lease is not given back; it ends by itself",
			"within", e.ttl(), "error", err)
	}
}
