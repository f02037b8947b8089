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

// TTL is how long a lease lasts without renewal.
const TTL = 3 * time.Second

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
	// TTL is how long the lease lasts without renewal; 0 for the constant. The world's servers have the same.
	TTL time.Duration

	bucket jetstream.KeyValue // nil before the first use, and if the bucket may be gone
}

func (l *Elector) ttl() time.Duration { return cmp.Or(l.TTL, TTL) }

// Acquire acquires the lease as soon as it is free. It tries every 250 ms, even if NATS does not
// answer. It returns an error only when ctx ends.
func (l *Elector) Acquire(ctx context.Context) (*Lease, error) {
	for {
		held, err := l.Try(ctx)
		if err == nil {
			return held, nil
		}
		if ctx.Err() == nil && !errors.Is(err, ErrHeld) {
			l.Logger.Warn("the writer's lease cannot be read; will try again", "error", err)
		}
		if err := backoff.Sleep(ctx, tryInterval); err != nil {
			return nil, err
		}
	}
}

// Try acquires the lease if it is free, and returns ErrHeld otherwise.
func (l *Elector) Try(ctx context.Context) (*Lease, error) { return l.acquire(ctx, l.claim) }

// CurrentHolder returns the Holder of the server that has the lease; "" if the lease is free.
func (l *Elector) CurrentHolder(ctx context.Context) (holder string, err error) {
	_, err = l.request(ctx, func(ctx context.Context) (uint64, error) {
		entry, err := l.bucket.Get(ctx, key)
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
func (l *Elector) Seize(ctx context.Context) (*Lease, error) {
	return l.acquire(ctx, func(ctx context.Context) (uint64, error) {
		return l.bucket.PutString(ctx, key, l.Holder)
	})
}

// acquire makes the request claim, and renews the lease from then on.
func (l *Elector) acquire(
	ctx context.Context, claim func(context.Context) (uint64, error),
) (*Lease, error) {
	asked := time.Now()
	revision, err := l.request(ctx, claim)
	if err != nil {
		return nil, err
	}
	h := &Lease{elector: l, lost: make(chan struct{})}
	h.renewed(asked, revision)
	l.Keeper.add(h)
	return h, nil
}

// request makes one request to the bucket, within TTL. It creates a missing bucket.
func (l *Elector) request(
	ctx context.Context, do func(context.Context) (uint64, error),
) (revision uint64, err error) {
	ctx, cancel := context.WithTimeout(ctx, TTL)
	defer cancel()
	if l.bucket == nil {
		l.bucket, err = l.open(ctx)
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
	l.bucket = nil
	return 0, fmt.Errorf("lease: lease of the writer of the world %s: %w",
		l.World, err)
}

// open returns the bucket, creates it if it is missing, and never updates it: updates by several
// servers would keep a cluster from electing its leaders.
func (l *Elector) open(ctx context.Context) (jetstream.KeyValue, error) {
	name := layout.WriterBucket(l.World)
	bucket, err := l.JetStream.KeyValue(ctx, name)
	if !errors.Is(err, jetstream.ErrBucketNotFound) {
		return bucket, err
	}
	return l.JetStream.CreateKeyValue(ctx, jetstream.KeyValueConfig{
		Bucket:      name,
		Description: "Which server is the writer of the world " + l.World,
		TTL:         l.ttl(), Replicas: max(l.Replicas, 1),
		// If nodes of a cluster restart in turn, they may lose a bucket in memory for ever: a
		// restarted node has forgotten its votes.
		Storage: jetstream.FileStorage,
	})
}

// claim creates the key, or renews it if this server has it.
func (l *Elector) claim(ctx context.Context) (uint64, error) {
	revision, err := l.bucket.Create(ctx, key, []byte(l.Holder))
	if !errors.Is(err, jetstream.ErrKeyExists) && !commitlog.IsWrongLastSequence(err) {
		return revision, err
	}
	entry, getErr := l.bucket.Get(ctx, key)
	if getErr != nil || string(entry.Value()) != l.Holder {
		return 0, err
	}
	return l.bucket.Update(ctx, key, entry.Value(), entry.Revision())
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
func (h *Lease) Valid() bool { return h.remaining() > 0 }

// Lost is closed when this server no longer counts as the holder, and by Release.
func (h *Lease) Lost() <-chan struct{} { return h.lost }

// remaining returns how long the lease lasts without renewal.
func (h *Lease) remaining() time.Duration {
	if until := h.until.Load(); until != nil {
		return time.Until(*until)
	}
	return 0
}

// renewed notes a renewal and when it was requested.
func (h *Lease) renewed(asked time.Time, revision uint64) {
	until := asked.Add(h.elector.ttl())
	h.revision = revision
	h.until.Store(&until)
}

// Release ends the lease, so that another server can acquire it at once. ctx bounds the wait for NATS.
// Release may be called again.
func (h *Lease) Release(ctx context.Context) {
	h.elector.Keeper.drop(h)
	<-h.lost
	if !h.Valid() {
		return
	}
	h.until.Store(nil)
	l := h.elector
	_, err := l.request(ctx, func(ctx context.Context) (uint64, error) {
		err := l.bucket.Delete(ctx, key, jetstream.LastRevision(h.revision))
		if !commitlog.IsWrongLastSequence(err) {
			return 0, err
		}
		revision, err := l.claim(ctx) // the last renewal may have got no answer
		if err != nil {
			return 0, err
		}
		return 0, l.bucket.Delete(ctx, key, jetstream.LastRevision(revision))
	})
	if err != nil && !errors.Is(err, ErrHeld) {
		h.elector.Logger.Warn("the writer's lease is not given back; it ends by itself",
			"within", l.ttl(), "error", err)
	}
}
