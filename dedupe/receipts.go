// Package dedupe knows which idempotency keys the world has accepted, and with what result.
//
// A receipt is derived from the commit log: one message per accepted handoff in the stream
// WORLD_<world>_RECEIPTS, on world.<world>.receipts.<idempotency key>. Receipts live as long as
// the dedupe retention, which is the stream's MaxAge. A follower of the log writes them; until it
// has written one, the instance that committed the handoff answers from memory.
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
)

// DefaultRetention is how long a receipt is kept unless the operator says otherwise.
const DefaultRetention = 30 * 24 * time.Hour

// Receipt says that a key was accepted. Its JSON is the body of its message.
type Receipt struct {
	Key       string         `json:"-"` // the idempotency key, the last token of the subject
	LogSeq    uint64         `json:"-"` // where in the log it was committed
	RunID     string         `json:"runId"`
	HandoffID string         `json:"handoffId"`
	ResultID  string         `json:"resultId"`
	Result    jsontext.Value `json:"result"` // the execution-result.v1, as it was answered
}

// StreamName returns the name of the stream of a world's receipts.
func StreamName(world string) string { return "WORLD_" + world + "_RECEIPTS" }

// Subject returns the subject of a key's receipt. A key is `proposal_` and 64 hex digits, so it
// needs no encoding.
func Subject(world, key string) string { return "world." + world + ".receipts." + key }

// StreamConfig returns the stream of a world's receipts. It is derived, so it may be persisted
// asynchronously: what a crash cuts off is written again from the log. Replicated streams do not
// offer that.
func StreamConfig(world string, retention time.Duration, replicas int) jetstream.StreamConfig {
	config := jetstream.StreamConfig{
		Name:              StreamName(world),
		Description:       "Receipts of accepted handoffs, derived from the commit log of " + world,
		Subjects:          []string{Subject(world, "*")},
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
	return &nats.Msg{Subject: Subject(world, r.Key), Data: body, Header: nats.Header{}}, nil
}

// Receipts answers whether a key was accepted. It is safe for concurrent use.
type Receipts struct {
	world  string
	stream jetstream.Stream

	mu       sync.Mutex
	pending  map[string]*Receipt // committed here, not yet known to be followed
	order    []*Receipt          // the pending ones in the order of the log
	followed uint64
}

// New reads receipts from stream, which was made of StreamConfig.
func New(world string, stream jetstream.Stream) *Receipts {
	return &Receipts{
		world: world, stream: stream,
		pending: map[string]*Receipt{},
	}
}

// Lookup returns the receipt of key, or nil when the key was not accepted. An error means that
// nobody knows, and the caller must not treat the key as free.
func (r *Receipts) Lookup(ctx context.Context, key string) (*Receipt, error) {
	r.mu.Lock()
	own := r.pending[key]
	r.mu.Unlock()
	if own != nil {
		return own, nil
	}
	msg, err := r.stream.GetLastMsgForSubject(ctx, Subject(r.world, key))
	if errors.Is(err, jetstream.ErrMsgNotFound) {
		return nil, nil
	}
	if err != nil {
		return nil, fmt.Errorf("dedupe: cannot look up %s: %w", key, err)
	}
	receipt := &Receipt{Key: key}
	if err := json.Unmarshal(msg.Data, receipt); err != nil {
		return nil, fmt.Errorf("dedupe: the receipt of %s at sequence %d is not readable: %w",
			key, msg.Sequence, err)
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
	r.pending[receipt.Key] = receipt
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
		if r.pending[r.order[kept].Key] == r.order[kept] {
			delete(r.pending, r.order[kept].Key)
		}
		kept++
	}
	r.order = r.order[kept:]
}
