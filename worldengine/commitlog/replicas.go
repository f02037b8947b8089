package commitlog

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"iter"
	"time"

	"github.com/nats-io/nats.go/jetstream"

	"worldengine/worldengine/backoff"
)

// Node is a node of NATS that has a replica of a stream.
type Node struct {
	Name           string
	Leads, Offline bool
	Behind         uint64 // how many operations it has not applied yet
}

// Unread returns why the replica of a node cannot be compared with the others now; "" if it can.
func (n *Node) Unread() string {
	switch {
	case n.Offline:
		return "it is offline"
	case n.Behind > 0:
		return fmt.Sprintf("it has not applied %d operations yet", n.Behind)
	}
	return ""
}

// Nodes returns the nodes that have the replicas of a stream, the leader first; none if there is
// only one replica.
func Nodes(info *jetstream.StreamInfo) []Node {
	if info.Cluster == nil || info.Config.Replicas <= 1 {
		return nil
	}
	nodes := []Node{{Name: info.Cluster.Leader, Leads: true}}
	for _, p := range info.Cluster.Replicas {
		node := Node{Name: p.Name, Offline: p.Offline}
		if !p.Current {
			node.Behind = p.Lag
		}
		nodes = append(nodes, node)
	}
	return nodes
}

// ErrElsewhere: no consumer came to be at the wanted node, which may be down.
var ErrElsewhere = errors.New("worldengine: NATS makes no consumer at the node")

// NATS places each consumer at a random node that it believes to be up. So consumers are made until
// one is at the wanted node, for placeWithin: a node that has just started counts as down at first.
const (
	placeWithin = 10 * time.Second
	placePause  = 20 * time.Millisecond
)

// createConsumer makes a consumer that reads a stream once, from the replica at a node. If node is
// "", that is the leader: another replica may be behind, or damaged.
func createConsumer(
	ctx context.Context, stream jetstream.Stream, node string, config jetstream.ConsumerConfig,
) (jetstream.Consumer, error) {
	config.AckPolicy, config.MemoryStorage, config.Replicas = jetstream.AckNonePolicy, true, 1
	config.InactiveThreshold = time.Minute // if its reader ends without deleting it
	if stream.CachedInfo().Config.Replicas <= 1 {
		return stream.CreateConsumer(ctx, config)
	}
	for until := time.Now().Add(placeWithin); time.Now().Before(until); {
		wanted := node
		if wanted == "" {
			info, err := LeaderInfo(ctx, stream) // it may have changed meanwhile
			if err != nil {
				return nil, err
			}
			wanted = info.Cluster.Leader
		}
		consumer, err := stream.CreateConsumer(ctx, config)
		if err != nil {
			return nil, err
		}
		if at := consumer.CachedInfo().Cluster; at != nil && at.Leader == wanted {
			return consumer, nil
		}
		Release(stream, consumer)
		if err := backoff.Sleep(ctx, placePause); err != nil {
			return nil, err
		}
	}
	return nil, fmt.Errorf("%w: %s", ErrElsewhere, cmp.Or(node, "the leader"))
}

// ReadReplica reads the messages of a stream from one sequence to another as the replica at a node
// delivers them, with bodies of up to largest bytes. It moves no leader. It omits messages that were
// changed on the node's disk. An error, such as ErrElsewhere, is the last element.
func ReadReplica(
	ctx context.Context, stream jetstream.Stream, node string, from, to uint64, largest int64,
) iter.Seq2[*jetstream.RawStreamMsg, error] {
	r := newReading(stream, jetstream.ConsumerConfig{
		DeliverPolicy: jetstream.DeliverByStartSequencePolicy,
	}, jetstream.FetchMaxBytes(max(fetchBytes, 2*int(largest))))
	r.node, r.last = node, from-1
	return func(yield func(*jetstream.RawStreamMsg, error) bool) {
		for try := 1; r.last < to; try++ {
			before := r.last
			r.config.OptStartSeq = before + 1
			for msg := range r.messages(ctx, fetchBodies) {
				if msg.Sequence > to || !yield(msg, nil) {
					return
				}
			}
			if r.last > before {
				try = 0
			}
			switch {
			case r.err != nil && (try >= fetchTries || ctx.Err() != nil || errors.Is(r.err, ErrElsewhere)):
				yield(nil, r.broken(r.err))
				return
			case r.err == nil && r.whole:
				return
			case r.err == nil && r.last == before: // the next one was changed on the disk
				r.last++
			}
		}
	}
}
