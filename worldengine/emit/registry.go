package emit

import (
	"context"
	"errors"
	"fmt"
	"regexp"
	"sync"
	"time"

	"github.com/google/uuid"
	"github.com/nats-io/nats.go/jetstream"

	"worldengine/runevents"
	"worldengine/worldengine/wire"
)

// EventIDRegistry keeps the eventId of every event that a producer emits, by (runId,
// idempotencyKey), so that a retry has the same one (RunEvents v2.0.1, section 2.5.1). Where a run
// can outlive its producer's process the registry must too. Implementations are safe for concurrent
// use.
type EventIDRegistry interface {
	// ID returns the eventId of an event, a UUID v4. The first call draws one and writes it down
	// before it returns; every later call, from any process, returns the same one.
	ID(ctx context.Context, runID, idempotencyKey string) (string, error)
	// Adopt replaces the eventId of an event by the one that the append authority returned: the
	// authority had persisted the event with an id that the registry has lost.
	Adopt(ctx context.Context, runID, idempotencyKey, eventID string) error
}

// MemoryRegistry is an EventIDRegistry that ends with its process, for runs that end with it too.
// It is safe for concurrent use.
type MemoryRegistry struct {
	mu  sync.Mutex
	ids map[[2]string]string
}

// NewMemoryRegistry returns an empty registry.
func NewMemoryRegistry() *MemoryRegistry {
	return &MemoryRegistry{ids: map[[2]string]string{}}
}

// ID implements EventIDRegistry. It never fails.
func (r *MemoryRegistry) ID(_ context.Context, runID, idempotencyKey string) (string, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	key := [2]string{runID, idempotencyKey}
	if _, ok := r.ids[key]; !ok {
		r.ids[key] = uuid.NewString()
	}
	return r.ids[key], nil
}

// Adopt implements EventIDRegistry. It never fails.
func (r *MemoryRegistry) Adopt(_ context.Context, runID, idempotencyKey, eventID string) error {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.ids[[2]string{runID, idempotencyKey}] = eventID
	return nil
}

// DefaultRegistryRetention is how long a durable registry keeps an eventId: as long as the server
// keeps run events by default.
const DefaultRegistryRetention = 30 * 24 * time.Hour

// KVRegistry is an EventIDRegistry in a JetStream key-value bucket, for producers whose runs
// outlive them. All producers of a world share its bucket; an entry's key is
// <runId>.<idempotencyKey>. It is safe for concurrent use.
type KVRegistry struct {
	bucket jetstream.KeyValue
}

// OpenRegistry opens the durable registry of a world, and creates its bucket, with that many
// replicas (at least 1), where there is none. An entry expires after retention, 0 for
// DefaultRegistryRetention; it should be as long as the server keeps run events. An existing bucket
// keeps its own retention and replicas. The error is ErrRegistry.
func OpenRegistry(
	ctx context.Context, js jetstream.JetStream, world string,
	retention time.Duration, replicas int,
) (*KVRegistry, error) {
	if retention == 0 {
		retention = DefaultRegistryRetention
	}
	bucket, err := js.KeyValue(ctx, wire.RegistryBucket(world))
	if errors.Is(err, jetstream.ErrBucketNotFound) {
		bucket, err = js.CreateKeyValue(ctx, jetstream.KeyValueConfig{
			Bucket:      wire.RegistryBucket(world),
			Description: "The eventIds of the run events that producers of " + world + " emit",
			TTL:         retention,
			Replicas:    max(replicas, 1),
		})
		if errors.Is(err, jetstream.ErrBucketExists) { // another producer was first
			bucket, err = js.KeyValue(ctx, wire.RegistryBucket(world))
		}
	}
	if err != nil {
		return nil, fmt.Errorf("%w: bucket %s: %w", ErrRegistry, wire.RegistryBucket(world), err)
	}
	return &KVRegistry{bucket: bucket}, nil
}

// registryAttempts is how often ID looks again for an entry that expired while it looked.
const registryAttempts = 3

// ID implements EventIDRegistry. The error is ErrRegistry; then the event must not be emitted.
func (r *KVRegistry) ID(ctx context.Context, runID, idempotencyKey string) (string, error) {
	key, err := entryKey(runID, idempotencyKey)
	if err != nil {
		return "", err
	}
	drawn := uuid.NewString()
	for range registryAttempts {
		_, err = r.bucket.Create(ctx, key, []byte(drawn))
		if err == nil {
			return drawn, nil
		}
		if !errors.Is(err, jetstream.ErrKeyExists) {
			break
		}
		var entry jetstream.KeyValueEntry
		if entry, err = r.bucket.Get(ctx, key); err == nil {
			return eventIDOf(key, entry.Value())
		}
		if !errors.Is(err, jetstream.ErrKeyNotFound) {
			break
		}
	}
	return "", fmt.Errorf("%w: entry %s: %w", ErrRegistry, key, err)
}

// Adopt implements EventIDRegistry. The error is ErrRegistry.
func (r *KVRegistry) Adopt(ctx context.Context, runID, idempotencyKey, eventID string) error {
	key, err := entryKey(runID, idempotencyKey)
	if err != nil {
		return err
	}
	if _, err := r.bucket.Put(ctx, key, []byte(eventID)); err != nil {
		return fmt.Errorf("%w: entry %s: %w", ErrRegistry, key, err)
	}
	return nil
}

var keyHex = regexp.MustCompile(`^[0-9a-f]{64}$`)

// entryKey returns the key of an entry, or an error for what would not be two tokens.
func entryKey(runID, idempotencyKey string) (string, error) {
	if !runevents.IsRunID(runID) || !keyHex.MatchString(idempotencyKey) {
		return "", fmt.Errorf("%w: runId %q and idempotencyKey %q cannot be the key of an entry",
			ErrRegistry, runID, idempotencyKey)
	}
	return runID + "." + idempotencyKey, nil
}

func eventIDOf(key string, value []byte) (string, error) {
	id, err := uuid.ParseBytes(value)
	if err != nil {
		return "", fmt.Errorf("%w: entry %s is damaged: %w", ErrRegistry, key, err)
	}
	return id.String(), nil
}
