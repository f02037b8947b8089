package projection

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/go-json-experiment/json"
	"github.com/nats-io/nats.go/jetstream"

	"worldengine/worldengine/failpoint"
)

// watermark is up to where a source is projected. It is kept in a key-value bucket, so that the
// next Runner goes on from there: what came meanwhile is projected too.
type watermark struct {
	// Created is when the stream was made: another one has other sequences.
	Created time.Time `json:"created"`
	Seq     uint64    `json:"seq"`
}

// watermarkKey is the key of the watermark in its bucket.
const watermarkKey = "watermark"

// bucket returns the bucket of the watermark, which it makes where there is none.
func (r *Runner) bucket(ctx context.Context) (jetstream.KeyValue, error) {
	kv, err := r.config.JetStream.KeyValue(ctx, r.config.Bucket)
	if errors.Is(err, jetstream.ErrBucketNotFound) {
		kv, err = r.config.JetStream.CreateKeyValue(ctx, jetstream.KeyValueConfig{
			Bucket: r.config.Bucket, Replicas: max(r.config.Replicas, 1),
			Description: "Up to where the stream " + r.config.Source.Stream + " is projected",
		})
	}
	if err != nil {
		return nil, fmt.Errorf("projection: bucket %s: %w", r.config.Bucket, err)
	}
	return kv, nil
}

// load returns the watermark that a Runner before this one has saved; the zero one where there is
// none.
func (r *Runner) load(ctx context.Context) (w watermark, err error) {
	if r.config.Bucket == "" {
		return w, nil
	}
	kv, err := r.bucket(ctx)
	if err != nil {
		return w, err
	}
	entry, err := kv.Get(ctx, watermarkKey)
	switch {
	case errors.Is(err, jetstream.ErrKeyNotFound):
		return w, nil
	case err != nil:
		return w, fmt.Errorf("projection: the watermark: %w", err)
	}
	if err := json.Unmarshal(entry.Value(), &w); err != nil {
		r.config.Logger.Error("the watermark of the projections cannot be read; they begin near "+
			"the end of the log",
			"bucket", r.config.Bucket, "error", err)
		return watermark{}, nil
	}
	return w, nil
}

// save saves the watermark, if it has moved. While a run waits to be read again it does not move:
// the run's events have to be found again.
func (r *Runner) save(ctx context.Context) error {
	if r.config.Bucket == "" || len(r.projector.Stale()) > 0 {
		return nil
	}
	r.mu.Lock()
	now := watermark{r.place.created, r.place.seq}
	r.mu.Unlock()
	if now == r.saved || now.Created.IsZero() {
		return nil
	}
	data, err := json.Marshal(now)
	if err != nil {
		return fmt.Errorf("projection: the watermark: %w", err)
	}
	kv, err := r.bucket(ctx)
	if err == nil {
		failpoint.At(failpoint.Keeping)
		_, err = kv.Put(ctx, watermarkKey, data)
	}
	if err != nil {
		return fmt.Errorf("projection: the watermark cannot be saved: %w", err)
	}
	failpoint.At(failpoint.Kept)
	r.saved = now
	return nil
}

// saveTimeout bounds the last save of a Runner that ends.
const saveTimeout = 2 * time.Second

// saveLast saves the watermark when ctx is done.
func (r *Runner) saveLast(ctx context.Context) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), saveTimeout)
	defer cancel()
	if !r.config.JetStream.Conn().IsConnected() {
		return
	}
	if err := r.save(ctx); err != nil {
		r.config.Logger.Warn("the next projector projects some events again", "error", err)
	}
}
