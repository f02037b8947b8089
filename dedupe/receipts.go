// Package dedupe knows which idempotency keys each town of the world has accepted, and with what
// result.
//
// A key belongs to its town: the same key in two towns is two keys. A receipt is derived from the
// commit log: one message per accepted handoff in the stream WORLD_<world>_RECEIPTS, on
// world.<world>.receipts.<town token>.<idempotency key>. Receipts live as long as the dedupe
// retention, which is the stream's MaxAge. A follower of the log writes them; until it has written
// one, the instance that committed the handoff answers from memory.
//
// Before the no of Lookup counts for a town that was read from the log, the follower must have
// followed the log up to there (follow.Follower.Wait).
package dedupe

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"
	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"worldengine/handoff"
	"worldengine/worldengine/wire"
)

// DefaultRetention is how long a receipt is kept unless the operator says otherwise.
const DefaultRetention = 30 * 24 * time.Hour

// Place is where a receipt stands: a town, by its token in subjects, and an idempotency key.
type Place struct{ Town, Key string }

// Receipt says that a town accepted a key. Its JSON is the body of its message.
type Receipt struct {
	Place     `json:"-"`
	LogSeq    uint64 `json:"-"` // where in the log it was committed
	TownID    string `json:"townId"`
	RunID     string `json:"runId"`
	HandoffID string `json:"handoffId"`
	ResultID  string `json:"resultId"`
	// the execution-result.v1, revision 0, as it was decided
	Result jsontext.Value `json:"result"`
	// Addition is what revision 1 of the result says beyond it.
	Addition *handoff.Addition `json:"addition,omitzero"`
}

// Subject returns the subject of the receipt at the place.
func (at Place) Subject(world string) string {
	return wire.ReceiptSubject(world, at.Town, at.Key)
}

// PlaceOf returns the place of a receipt's subject, the zero place for another subject.
func PlaceOf(subject string) Place {
	town, key, _ := wire.ReceiptOf(subject)
	return Place{town, key}
}

// All is the place of all receipts, for subjects that match them.
var All = Place{"*", "*"}

// StreamConfig returns the stream of a world's receipts. It is derived, so it may be persisted
// asynchronously: what a crash cuts off is written again from the log. Replicated streams do not
// offer that.
func StreamConfig(world string, retention time.Duration, replicas int) jetstream.StreamConfig {
	config := jetstream.StreamConfig{
		Name:              wire.ReceiptStream(world),
		Description:       "Receipts of accepted handoffs, derived from the commit log of " + world,
		Subjects:          []string{All.Subject(world)},
		MaxAge:            retention,
		MaxMsgsPerSubject: 1,
		AllowDirect:       replicas <= 1, // a follower's copy may be behind its leader
		Replicas:          max(replicas, 1),
		Duplicates:        min(time.Second, retention),
	}
	if replicas <= 1 {
		config.PersistMode = jetstream.AsyncPersistMode
	}
	return config
}

// Message returns the message that stores the receipt.
func (r *Receipt) Message(world string) (*nats.Msg, error) {
	body, err := json.Marshal(r)
	if err != nil {
		return nil, fmt.Errorf("dedupe: receipt of %s: %w", r.Key, err)
	}
	return &nats.Msg{Subject: r.Place.Subject(world), Data: body, Header: nats.Header{}}, nil
}

// Receipts answers whether a key was accepted. It is safe for concurrent use.
type Receipts struct {
	world  string
	stream jetstream.Stream

	mu       sync.Mutex
	pending  map[Place]*Receipt // committed here, not yet known to be followed
	order    []*Receipt         // the pending ones in the order of the log
	followed uint64

	// created says which stream it is that is followed, and seen when it was seen last: see
	// confirm.
	created time.Time
	seen    time.Time
	losses  int
	asking  sync.Mutex

	replaced func()
}

// New reads receipts from stream, which was made of StreamConfig. replaced is called when the
// stream turns out to be another one than it was: from then on nothing must count as followed that
// was followed before. It must not call the Receipts.
func New(world string, stream jetstream.Stream, replaced func()) *Receipts {
	return &Receipts{
		world: world, stream: stream, created: stream.CachedInfo().Created, replaced: replaced,
		pending: map[Place]*Receipt{},
	}
}

// Lookup returns the receipt at a place, or nil when the town has not accepted the key. An error
// means that it is not known, and the caller must not treat the key as free. The stream has the
// receipts of the log up to a sequence: what was committed here before that is answered from there,
// since the key may have a later receipt.
func (r *Receipts) Lookup(ctx context.Context, at Place, followed uint64) (*Receipt, error) {
	r.mu.Lock()
	own := r.pending[at]
	r.mu.Unlock()
	if own != nil && own.LogSeq > followed {
		return own, nil
	}
	return r.stored(ctx, at)
}

// LookupAny returns the receipt of the town that was the last to accept key, nil when no town has
// accepted it: the last one that this instance has committed and not seen followed, or else the
// last one of the stream, which has the receipts of the log up to a sequence. The order of the
// stream is that of the log but for receipts that a repair wrote again. It costs more than Lookup:
// NATS walks through the towns.
func (r *Receipts) LookupAny(ctx context.Context, key string, followed uint64) (*Receipt, error) {
	if own := r.lastOwn(key); own != nil && own.LogSeq > followed {
		return own, nil
	}
	return r.stored(ctx, Place{"*", key})
}

// lastOwn returns the last receipt of a key that this instance committed and that is not known to
// be followed, or nil.
func (r *Receipts) lastOwn(key string) (last *Receipt) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, own := range r.order {
		if own.Key == key && (last == nil || own.LogSeq > last.LogSeq) {
			last = own
		}
	}
	return last
}

// stored returns the last receipt that the stream has at a place, or nil.
func (r *Receipts) stored(ctx context.Context, at Place) (*Receipt, error) {
	if err := r.confirm(ctx); err != nil {
		return nil, err
	}
	msg, err := r.stream.GetLastMsgForSubject(ctx, at.Subject(r.world))
	if errors.Is(err, jetstream.ErrMsgNotFound) {
		if r.age() >= RecreateAfter {
			return nil, ErrReplaced
		}
		return nil, nil
	}
	if err != nil {
		return nil, fmt.Errorf("dedupe: cannot look up %s: %w", at.Key, err)
	}
	receipt := &Receipt{Place: PlaceOf(msg.Subject)}
	if err := json.Unmarshal(msg.Data, receipt); err != nil {
		return nil, fmt.Errorf("dedupe: the receipt of %s at sequence %d is not readable: %w",
			at.Key, msg.Sequence, err)
	}
	return receipt, nil
}

// Remember keeps a receipt that this instance committed until the follower has passed it.
func (r *Receipts) Remember(receipt *Receipt) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if receipt.LogSeq <= r.followed {
		return
	}
	r.pending[receipt.Place] = receipt
	r.order = append(r.order, receipt)
}

// Followed says that the receipts of the log up to sequence seq are in the stream.
func (r *Receipts) Followed(seq uint64) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.followed = seq
	// Towns commit side by side, so the order of Remember is that of the log but for neighbours.
	kept := 0
	for kept < len(r.order) && r.order[kept].LogSeq <= seq {
		if at := r.order[kept].Place; r.pending[at] == r.order[kept] {
			delete(r.pending, at)
		}
		kept++
	}
	r.order = r.order[kept:]
}
