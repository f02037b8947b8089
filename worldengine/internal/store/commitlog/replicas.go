package commitlog

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"iter"
	"time"

	"github.com/nats-io/nats.go/jetstream"

	"worldengine/worldengine/internal/kit/backoff"
)

// Node is a node of NATS that has a replica of a stream.
type Node struct {
	Name           string
	Leads, Offline bool
	// Silent is set if the leader has not heard the node for nodeSilenceTimeout, or never since its election. NATS
	// notices only later that a node that was killed or cut off is offline.
	Silent bool
	Behind uint64 // how many operations it has not applied yet; 0 if it is current
}

// nodeSilenceTimeout is more than twice as long as the nodes of a stream take to answer its leader, each second.
const nodeSilenceTimeout = 2500 * time.Millisecond

// SkipReason returns why the replica of a node cannot be compared with the others now; "" if it can.
func (n *Node) SkipReason() string {
	switch {
	case n.Offline:
		return "it is offline"
	case n.Behind > 0:
		return fmt.Sprintf("it has not applied %d operations yet", n.Behind)
	}
	return ""
}

// Nodes returns the nodes that have the replicas of a stream, the leader first; none if there is
// only one replica. The error is ErrLogUnavailable.
func Nodes(ctx context.Context, stream jetstream.Stream) ([]Node, error) {
	info, err := LeaderInfo(ctx, stream)
	if err != nil || info.Cluster == nil || info.Config.Replicas <= 1 {
		return nil, err
	}
	nodes := []Node{{Name: info.Cluster.Leader, Leads: true}}
	for _, p := range info.Cluster.Replicas {
		node := Node{Name: p.Name, Offline: p.Offline, Silent: p.Active == 0 || p.Active > nodeSilenceTimeout}
		if !p.Current {
			node.Behind = p.Lag
		}
		nodes = append(nodes, node)
	}
	return nodes, nil
}

// errElsewhere means that no consumer came to be at the wanted node, which may be down.
var errElsewhere = errors.New("commitlog: NATS makes no consumer at the node")

// NATS places each consumer at a random node that it believes to be up. So consumers are made until
// one is at the wanted node, for placementTimeout: a node that has just started counts as down at first.
// A node that has just ended, or is cut off, counts as up, and a consumer that is placed there never
// answers.
const (
	placementTimeout  = 10 * time.Second
	placementInterval = 20 * time.Millisecond
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
	tries := tryTimeout{firstAnswerTimeout, answerTimeout}
	for until := time.Now().Add(placementTimeout); time.Now().Before(until); {
		wanted := node
		if wanted == "" {
			info, err := LeaderInfo(ctx, stream) // it may have changed meanwhile
			if err != nil {
				return nil, err
			}
			wanted = info.Cluster.Leader
		}
		var consumer jetstream.Consumer
		unanswered, err := tries.ask(ctx, func(ctx context.Context) (err error) {
			consumer, err = stream.CreateConsumer(ctx, config)
			return err
		})
		if err != nil && !unanswered {
			return nil, err
		}
		if err == nil {
			if at := consumer.CachedInfo().Cluster; at != nil && at.Leader == wanted {
				return consumer, nil
			}
			DeleteConsumer(stream, consumer)
		}
		if err := backoff.Sleep(ctx, placementInterval); err != nil {
			return nil, err
		}
	}
	return nil, fmt.Errorf("%w: %s", errElsewhere, cmp.Or(node, "the leader"))
}

// maxUnreadable bounds the messages in a row that are counted and not delivered: each costs fetchTimeout.
const maxUnreadable = 32

// readReplica reads the messages of a range as the replica at a node delivers them; without bodies if
// largest is 0, else with bodies of up to largest bytes. It omits messages that were changed on the
// node's disk. An error, such as errElsewhere, is the last element.
func readReplica(
	ctx context.Context, stream jetstream.Stream, node string, within Range, largest int64,
) iter.Seq2[*jetstream.RawStreamMsg, error] {
	r := newScan(stream, jetstream.ConsumerConfig{
		DeliverPolicy: jetstream.DeliverByStartSequencePolicy, HeadersOnly: largest == 0,
	}, jetstream.FetchMaxBytes(max(fetchBytes, 2*int(largest))))
	r.node, r.last = node, within.First-1
	return func(yield func(*jetstream.RawStreamMsg, error) bool) {
		for try := 1; r.last < within.Last; try++ {
			before := r.last
			r.config.OptStartSeq = before + 1
			for msg := range r.messages(ctx, fetchBodies) {
				if msg.Sequence > within.Last || !yield(msg, nil) {
					return
				}
			}
			if r.last > before {
				try = 0
			}
			switch {
			case r.err != nil && (try >= fetchTries || ctx.Err() != nil || errors.Is(r.err, errElsewhere)):
				yield(nil, r.wrapError(r.err))
				return
			case r.err == nil && r.complete:
				return
			case r.err == nil && try > maxUnreadable:
				yield(nil, fmt.Errorf("%w: %d messages in a row at the node %s, up to sequence %d",
					ErrUnreadable, maxUnreadable, node, before))
				return
			case r.err == nil && r.last == before: // the next one was changed on the disk
				r.last++
			}
		}
	}
}

// Looks at the numbers of messages, in which an answer of a node may take countTimeout.
const (
	countRounds   = 3
	countInterval = 300 * time.Millisecond
	countTimeout  = 2 * answerTimeout
)

// ErrUncounted: a node that NATS does not count as offline was silent when the nodes were asked how many messages
// they have. The others do not differ. Ask again: a leader may not have heard a node yet, soon after its election.
var ErrUncounted = errors.New("commitlog: a node was not heard")

// CountsDiffer reports whether a follower of a stream counts more messages than the leader in each of
// some looks, which should not be, and whether one counts fewer, as if it were catching up. Nodes
// that do not answer are left out; the error is ErrUncounted if the others do not differ.
func CountsDiffer(
	ctx context.Context, stream jetstream.Stream,
) (leaderLacks, followerLacks bool, err error) {
	leaderLacks, followerLacks = true, true
	unanswered := map[string]bool{}
	for look := 0; leaderLacks || followerLacks; look++ {
		if look == countRounds {
			return leaderLacks, followerLacks, nil
		}
		nodes, err := Nodes(ctx, stream)
		if err != nil || len(nodes) == 0 {
			return false, false, err
		}
		if look > 0 {
			_ = backoff.Sleep(ctx, countInterval)
		}
		// The stream grows, so the leader is asked after the followers, and they after it.
		var more, fewer bool
		before := countsAt(ctx, stream, nodes[1:], unanswered)
		leader := countsAt(ctx, stream, nodes[:1], unanswered)
		after := countsAt(ctx, stream, nodes[1:], unanswered)
		for name, n := range before {
			more = more || len(leader) == 1 && n > leader[nodes[0].Name]
			fewer = fewer || len(leader) == 1 && after[name] < leader[nodes[0].Name] && after[name] > 0
		}
		leaderLacks, followerLacks = leaderLacks && more, followerLacks && fewer
		if !leaderLacks && !followerLacks {
			err = requireCounted(nodes, before, leader, after)
		}
		if err != nil {
			return false, false, err
		}
	}
	return false, false, ctx.Err()
}

// requireCounted returns ErrUncounted if a node that is not offline is not in all of the counts of its kind: the
// leader's, whose node is the first, or the followers'.
func requireCounted(nodes []Node, before, leader, after map[string]uint64) error {
	for i := range nodes {
		name := nodes[i].Name
		_, counted := leader[name]
		if i > 0 {
			_, first := before[name]
			_, again := after[name]
			counted = first && again
		}
		if !counted && !nodes[i].Offline {
			return fmt.Errorf("%w: %s", ErrUncounted, name)
		}
	}
	return nil
}

// countsAt returns how many messages nodes count of a stream, by the nodes that answer. It adds the others to
// unanswered, and does not ask them again: a takeover waits for the answers.
func countsAt(
	ctx context.Context, stream jetstream.Stream, nodes []Node, unanswered map[string]bool,
) map[string]uint64 {
	counts := map[string]uint64{}
	for _, node := range nodes {
		if node.Offline || node.Silent || unanswered[node.Name] {
			continue
		}
		bounded, cancel := context.WithTimeout(ctx, countTimeout)
		consumer, err := createConsumer(bounded, stream, node.Name, jetstream.ConsumerConfig{})
		cancel()
		if err == nil {
			counts[node.Name] = consumer.CachedInfo().NumPending
			DeleteConsumer(stream, consumer)
		}
		unanswered[node.Name] = err != nil
	}
	return counts
}

// Bounds of MoveLeader.
const (
	moveTries    = 5
	moveInterval = 500 * time.Millisecond
)

// MoveLeader has NATS make a node the leader of a stream. It returns nil if the node leads.
func MoveLeader(
	ctx context.Context, js jetstream.JetStream, stream jetstream.Stream, node string,
) error {
	name := stream.CachedInfo().Config.Name
	request := fmt.Appendf(nil, `{"placement":{"preferred":%q}}`, node)
	for range moveTries {
		if nodes, err := Nodes(ctx, stream); err == nil && len(nodes) > 0 && nodes[0].Name == node {
			return nil
		}
		bounded, cancel := context.WithTimeout(ctx, answerTimeout)
		_, _ = js.Conn().RequestWithContext(bounded, "$JS.API.STREAM.LEADER.STEPDOWN."+name, request)
		cancel()
		if err := backoff.Sleep(ctx, moveInterval); err != nil {
			return err
		}
	}
	return fmt.Errorf("%w: the node %s does not come to lead the stream %s", ErrLogUnavailable, node, name)
}
