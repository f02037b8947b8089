package runevents

import (
	"context"
	"errors"
	"fmt"
	"regexp"
	"sync"
	"time"

	"github.com/google/uuid"
	"github.com/nats-io/nats.go/jetstream"
)

// EventIDRegistry keeps the eventId of every event that a producer emits, by (runId,
// idempotencyKey), so that a retry has the same one (RunEvents v2.0.1, section 2.5.1). Where a run
// can outlive its producer's process the registry must too. It is safe for concurrent use.
type EventIDRegistry interface {
	// ID returns the eventId of an event, a UUID v4. The first time it draws one and writes it down
	// before it returns; whoever asks again, from whatever process, gets the same.
	ID(ctx context.Context, runID, idempotencyKey string) (string, error)
	// Adopt makes eventID the one of an event from now on, because the append authority returned
	// it: the event was persisted with an id that the registry had lost.
	Adopt(ctx context.Context, runID, idempotencyKey, eventID string) error
}

// MemoryRegistry is an EventIDRegistry that ends with its process, for runs that do too.
type MemoryRegistry struct {
	mu  sync.Mutex
	ids map[[2]string]string
}

// NewMemoryRegistry returns an empty registry.
func NewMemoryRegistry() *MemoryRegistry {
	return &MemoryRegistry{ids: map[[2]string]string{}}
}

// ID is as EventIDRegistry says. It never fails.
func (r *MemoryRegistry) ID(_ context.Context, runID, idempotencyKey string) (string, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	key := [2]string{runID, idempotencyKey}
	if _, ok := r.ids[key]; !ok {
		r.ids[key] = uuid.NewString()
	}
	return r.ids[key], nil
}

// Adopt is as EventIDRegistry says. It never fails.
func (r *MemoryRegistry) Adopt(_ context.Context, runID, idempotencyKey, eventID string) error {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.ids[[2]string{runID, idempotencyKey}] = eventID
	return nil
}

// IsID says whether id is what an eventId must be: a UUID v4 of lower-case hex in five groups.
func IsID(id string) bool {
	if len(id) != 36 {
		return false
	}
	for i := range len(id) {
		c := id[i]
		switch i {
		case 8, 13, 18, 23:
			if c != '-' {
				return false
			}
		case 14:
			if c != '4' {
				return false
			}
		case 19:
			if c != '8' && c != '9' && c != 'a' && c != 'b' {
				return false
			}
		default:
			if (c < '0' || c > '9') && (c < 'a' || c > 'f') {
				return false
			}
		}
	}
	return true
}

// DefaultRegistryRetention is how long a durable registry keeps an eventId: as long as the server
// keeps run events by default.
const DefaultRegistryRetention = 30 * 24 * time.Hour

// RegistryBucket returns the name of the key-value bucket of a world's durable registry.
func RegistryBucket(world string) string { return "WORLD_" + world + "_EVENTIDS" }

// KVRegistry is an EventIDRegistry in a JetStream key-value bucket, for producers whose runs
// outlive them. All producers of a world share its bucket; an entry is <runId>.<idempotencyKey>.
type KVRegistry struct {
	bucket jetstream.KeyValue
}

// OpenRegistry opens the durable registry of a world, and makes its bucket where there is none. An
// entry expires after retention, 0 for DefaultRegistryRetention, which should be what the run
// events are kept for; a bucket that is there keeps its own.
func OpenRegistry(
	ctx context.Context, js jetstream.JetStream, world string, retention time.Duration, replicas int,
) (*KVRegistry, error) {
	if retention == 0 {
		retention = DefaultRegistryRetention
	}
	bucket, err := js.KeyValue(ctx, RegistryBucket(world))
	if errors.Is(err, jetstream.ErrBucketNotFound) {
		bucket, err = js.CreateKeyValue(ctx, jetstream.KeyValueConfig{
			Bucket:      RegistryBucket(world),
			Description: "The eventIds of the run events that producers of " + world + " emit",
			TTL:         retention,
			Replicas:    max(replicas, 1),
		})
		if errors.Is(err, jetstream.ErrBucketExists) { // another producer was first
			bucket, err = js.KeyValue(ctx, RegistryBucket(world))
		}
	}
	if err != nil {
		return nil, fmt.Errorf("%w: bucket %s: %w", ErrRegistry, RegistryBucket(world), err)
	}
	return &KVRegistry{bucket: bucket}, nil
}

// registryAttempts is how often ID looks again for an entry that expired while it looked.
const registryAttempts = 3

// ID is as EventIDRegistry says. The error is ErrRegistry, and nothing may be emitted then.
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

// Adopt is as EventIDRegistry says. The error is ErrRegistry.
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

// entryKey refuses what would not be two tokens.
func entryKey(runID, idempotencyKey string) (string, error) {
	if !runToken.MatchString(runID) || !keyHex.MatchString(idempotencyKey) {
		return "", fmt.Errorf("%w: %q and %q cannot be the key of an entry", ErrRegistry, runID, idempotencyKey)
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

// ErrRegistry is returned when an eventId cannot be looked up or written down for good. Nothing was
// emitted; emit again.
var ErrRegistry = errors.New("runevents: the registry of event ids does not answer")
