package commitlog

import (
	"bytes"
	"cmp"
	"context"
	"fmt"
	"iter"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/nats-io/nats.go/jetstream"

	"worldengine/worldengine/internal/kit/backoff"
)

// Replica is the log as one node of NATS delivers it.
type Replica struct {
	Node     string `json:"node"`
	Leads    bool   `json:"leads"`
	Messages int64  `json:"messages"`
	// Lacks has the first ranges of messages that another node has and this one does not deliver, or
	// delivers with other bytes than the nodes before it. LackCount counts these messages.
	Lacks     []Range `json:"lacks,omitempty"`
	LackCount int64   `json:"lackCount"`
	// SkipReason is why the node was not compared; "" if it was.
	SkipReason string `json:"unread,omitzero"`
}

// LacksLess reports whether a replica can be read and lacks fewer messages than another one.
func (r *Replica) LacksLess(than *Replica) bool {
	return r.SkipReason == "" && (than.SkipReason != "" || r.LackCount < than.LackCount)
}

// Range is the log sequences of messages, of which any node has the ones between First and Last.
type Range struct {
	First uint64 `json:"first"`
	Last  uint64 `json:"last"`
}

// String returns the range as people read it.
func (r Range) String() string {
	if r.First == r.Last {
		return fmt.Sprint(r.First)
	}
	return fmt.Sprintf("%d to %d", r.First, r.Last)
}

// Comparison compares the replicas of a stream message by message. It moves no leader: each node is
// read by a consumer of its own.
type Comparison struct {
	Stream jetstream.Stream
	// Largest is the largest body to compare, in bytes; with 0 no bodies are compared.
	Largest int64
	// Progress is called with the sequence of each message.
	Progress func(seq uint64)
}

// Run compares the messages of a range, and returns the replicas, the leader's first; none if there
// is only one. The error is ErrLogUnavailable.
func (c *Comparison) Run(ctx context.Context, within Range) ([]Replica, error) {
	nodes, err := c.currentNodes(ctx)
	if err != nil || len(nodes) == 0 {
		return nil, err
	}
	replicas, err := c.compareOnce(ctx, nodes, within, nil)
	// A message that was discarded, or came to a node, during a look does not count in the next one.
	for look := 1; err == nil && countLacking(replicas) > 0 && look <= maxComparisons; look++ {
		before := countLacking(replicas)
		if err = backoff.Sleep(ctx, recompareInterval); err != nil {
			break
		}
		replicas, err = c.compareOnce(ctx, nodes, span(replicas), replicas)
		if countLacking(replicas) == before {
			break
		}
	}
	return replicas, err
}

// Looks at what replicas lack, until two agree.
const (
	recompareInterval = 2 * time.Second
	maxComparisons    = 30
)

// countLacking counts the messages that replicas lack.
func countLacking(replicas []Replica) (n int64) {
	for i := range replicas {
		n += replicas[i].LackCount
	}
	return n
}

// currentTimeout bounds the wait for nodes that have not applied the newest messages yet.
const currentTimeout = 10 * time.Second

// currentNodes returns the nodes of the stream. It waits a little until all are current.
func (c *Comparison) currentNodes(ctx context.Context) ([]Node, error) {
	for until := time.Now().Add(currentTimeout); ; {
		nodes, err := Nodes(ctx, c.Stream)
		if err != nil || time.Now().After(until) || !slices.ContainsFunc(nodes, func(n Node) bool {
			return n.SkipReason() != ""
		}) {
			return nodes, err
		}
		if err := backoff.Sleep(ctx, retryDelay); err != nil {
			return nil, err
		}
	}
}

// span returns the range of all that replicas lack.
func span(replicas []Replica) (all Range) {
	for i := range replicas {
		if lacks := replicas[i].Lacks; len(lacks) > 0 {
			if all.First == 0 || lacks[0].First < all.First {
				all.First = lacks[0].First
			}
			all.Last = max(all.Last, lacks[len(lacks)-1].Last)
		}
	}
	return all
}

// contains reports whether ranges, which are ascending, have a sequence.
func contains(ranges []Range, seq uint64) bool {
	i, _ := slices.BinarySearchFunc(ranges, seq, func(r Range, seq uint64) int {
		return cmp.Compare(r.Last, seq)
	})
	return i < len(ranges) && ranges[i].First <= seq
}

// expires reports whether a message comes to the end of its time to live: the nodes discard it one
// after the other.
func expires(msg *jetstream.RawStreamMsg) bool {
	ttl, err := time.ParseDuration(msg.Header.Get(jetstream.MsgTTLHeader))
	return err == nil && time.Since(msg.Time) > ttl-time.Minute
}

// replicaReader reads the replica of one node, message by message.
type replicaReader struct {
	*Replica
	previous *Replica // what it lacked in the last look; nil in the first one
	pull     func() (*jetstream.RawStreamMsg, error, bool)
	head     *jetstream.RawStreamMsg // nil at the end
	// lacks is set if the replica lacked the last message that was compared.
	lacks bool
}

// next reads the next message.
func (r *replicaReader) next() {
	msg, err, ok := r.pull()
	if r.head = nil; ok && err == nil {
		r.head = msg
	}
	if err != nil {
		r.SkipReason = err.Error()
	}
}

// compare notes whether the replica has a message, and goes on behind that.
func (r *replicaReader) compare(with *jetstream.RawStreamMsg) {
	here := r.head != nil && r.head.Sequence == with.Sequence
	same := here && r.head.Subject == with.Subject && bytes.Equal(r.head.Data, with.Data) &&
		maps.EqualFunc(r.head.Header, with.Header, slices.Equal)
	counts := r.previous == nil && !expires(with) || r.previous != nil && contains(r.previous.Lacks, with.Sequence)
	switch {
	case same || !counts:
		r.lacks = false
	case r.lacks:
		r.Lacks[len(r.Lacks)-1].Last = with.Sequence
		r.LackCount++
	default:
		r.Lacks = append(r.Lacks, Range{with.Sequence, with.Sequence})
		r.LackCount++
		r.lacks = true
	}
	if r.previous == nil && same {
		r.Messages++
	}
	if here {
		r.next()
	}
}

// compareOnce compares the messages of a range, in which the nodes are read side by side. After a first
// look, only messages that a node lacked before count.
func (c *Comparison) compareOnce(
	ctx context.Context, nodes []Node, within Range, previous []Replica,
) ([]Replica, error) {
	replicas := make([]Replica, len(nodes))
	var readers []*replicaReader
	for i, node := range nodes {
		r := &replicaReader{Replica: &replicas[i]}
		r.Node, r.Leads, r.SkipReason = node.Name, node.Leads, node.SkipReason()
		if previous != nil {
			r.previous = &previous[i]
			r.Messages, r.SkipReason = r.previous.Messages, r.previous.SkipReason
		}
		if r.SkipReason != "" {
			continue
		}
		pull, stop := iter.Pull2(readReplica(ctx, c.Stream, node.Name, within, c.Largest))
		defer stop()
		r.pull = pull
		r.next()
		readers = append(readers, r)
	}
	for {
		readers = slices.DeleteFunc(readers, func(r *replicaReader) bool { return r.SkipReason != "" })
		first := firstMessage(readers)
		if first == nil {
			return replicas, ctx.Err()
		}
		for _, r := range readers {
			r.compare(first)
		}
		if c.Progress != nil {
			c.Progress(first.Sequence)
		}
	}
}

// firstMessage returns the message with the least sequence that a reader comes to; nil at the end.
func firstMessage(readers []*replicaReader) (first *jetstream.RawStreamMsg) {
	for _, r := range readers {
		if r.head != nil && (first == nil || r.head.Sequence < first.Sequence) {
			first = r.head
		}
	}
	return first
}

// Missing says how many messages a replica lacks, and which.
func (r *Replica) Missing() string {
	var ranges []string
	for _, lack := range r.Lacks[:min(len(r.Lacks), 5)] {
		ranges = append(ranges, lack.String())
	}
	if len(r.Lacks) > len(ranges) {
		ranges = append(ranges, "…")
	}
	return fmt.Sprintf("%d missing: %s", r.LackCount, strings.Join(ranges, ", "))
}
