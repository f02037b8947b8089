package logwatch

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"math"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/nats-io/nats.go/jetstream"

	"worldengine/runevents"
	"worldengine/worldengine/internal/store/alerts"
	"worldengine/worldengine/internal/store/commitlog"
)

// Replicas looks after the replicas of the log. NATS counts a node that has lost messages as current,
// and may have it lead the log: then they are missing for everybody. It is safe for concurrent use.
type Replicas struct {
	js jetstream.JetStream

	mu      sync.Mutex // held during a comparison
	deposed string     // the node that must lead no more, until a comparison finds that another one leads
	damaged atomic.Pointer[damagedReplicas]
}

// damagedReplicas are the nodes that lacked messages of the log when all were last compared.
type damagedReplicas struct {
	nodes  []commitlog.Replica
	leader commitlog.Replica // after the comparison
}

// compareCounts compares the numbers of messages that the nodes have, and then the messages if the numbers
// differ. With onlyLeader a follower that has fewer does not count. moved means that another node
// has come to lead the log.
func (r *Replicas) compareCounts(
	ctx context.Context, stream jetstream.Stream, onlyLeader bool,
) (moved bool, err error) {
	leader, follower, err := commitlog.CountsDiffer(ctx, stream)
	if err != nil || !leader && (onlyLeader || !follower) {
		return false, err
	}
	return r.compareMessages(ctx, stream)
}

// compareMessages compares the replicas message by message. If another node lacks less than the leader, it
// comes to lead the log, and moved is set. So the log never goes back and forth between two nodes.
func (r *Replicas) compareMessages(ctx context.Context, stream jetstream.Stream) (moved bool, err error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	comparison := commitlog.Comparison{Stream: stream}
	all, err := comparison.Run(ctx, commitlog.Range{First: 1, Last: math.MaxUint64})
	if err != nil || len(all) == 0 {
		return false, err
	}
	best, moved, err := r.leadByBest(ctx, stream, all)
	if err != nil {
		return false, err
	}
	found := damagedReplicas{leader: all[best]}
	for _, replica := range all {
		if replica.SkipReason != "" { // as before, as far as is known
			replica = r.known(replica.Node)
		}
		if replica.LackCount > 0 {
			found.nodes = append(found.nodes, replica)
		}
	}
	r.damaged.Store(&found)
	return moved, nil
}

// leadByBest has the replica lead the log that lacks the fewest messages, and returns its index. The first one leads
// until then, and goes on unless another lacks less. After an error NATS may move the leader all the same: then moved
// is set by the next call.
func (r *Replicas) leadByBest(
	ctx context.Context, stream jetstream.Stream, all []commitlog.Replica,
) (best int, moved bool, err error) {
	for i := range all {
		if all[i].LacksLess(&all[best]) {
			best = i
		}
	}
	if best > 0 {
		r.deposed = all[0].Node
		err = commitlog.MoveLeader(ctx, r.js, stream, all[best].Node)
	}
	if err != nil {
		return best, false, err
	}
	moved = r.deposed != "" && r.deposed != all[best].Node
	r.deposed = ""
	return best, moved, nil
}

// known returns a node as the last comparison found it.
func (r *Replicas) known(node string) commitlog.Replica {
	if found := r.damaged.Load(); found != nil {
		for _, replica := range found.nodes {
			if replica.Node == node {
				return replica
			}
		}
	}
	return commitlog.Replica{Node: node}
}

// alerts returns an alert for each damaged node.
func (d *damagedReplicas) alerts() (all []runevents.Alert) {
	for i := range d.nodes {
		effect := "The node " + d.leader.Node + ", which has them, leads the log"
		remedy := "NATS does not fetch them again by itself: empty the node, as docs/repair.md says"
		if d.leader.LackCount > 0 {
			effect = "No node has all messages; the node " + d.leader.Node + " leads the log"
			remedy = "EMPTY NONE: handoffctl fsck --replicas says what to do"
		}
		all = append(all, alerts.ReplicaDamaged.Alert(alerts.About{}, "{node}", d.nodes[i].Node,
			"{missing}", d.nodes[i].Missing(), "{effect}", effect, "{remedy}", remedy))
	}
	return all
}

// Damaged names the nodes that lacked messages of the log when they were last compared; "" if there is
// none.
func (r *Replicas) Damaged() string {
	found := r.damaged.Load()
	if found == nil {
		return ""
	}
	var nodes []string
	for i := range found.nodes {
		nodes = append(nodes, fmt.Sprintf("%s (%s)", found.nodes[i].Node, found.nodes[i].Missing()))
	}
	return strings.Join(nodes, "; ")
}

// raise alerts operators once to each damaged node.
func (r *Replicas) raise(to *alerts.Alerts) {
	if found := r.damaged.Load(); found != nil {
		for _, alert := range found.alerts() {
			to.RaiseOnce(alert)
		}
	}
}

// replicaCheckTimeout bounds a check at a start.
const replicaCheckTimeout = time.Minute

// CheckReplicas has an intact node lead the log of a world, if there is a log, before anything is read
// from it, such as the settings of the world. If the nodes do not answer, they are compared later: a Watcher
// looks again.
func CheckReplicas(ctx context.Context, js jetstream.JetStream, world string, logger *slog.Logger) *Replicas {
	ctx, cancel := context.WithTimeout(ctx, replicaCheckTimeout)
	defer cancel()
	r, moved := &Replicas{js: js}, false
	stream, err := commitlog.OpenLog(ctx, js, world)
	if err == nil {
		moved, err = r.compareCounts(ctx, stream, true)
	}
	switch {
	case errors.Is(err, commitlog.ErrNoWorld):
	case err != nil:
		logger.Warn("the replicas of the log cannot be compared yet", "error", err)
	case moved:
		logger.Warn(leaderMovedText, "damaged", r.Damaged())
	}
	return r
}

// leaderMovedText is logged when another node leads the log.
const leaderMovedText = "another node leads the log now, since its leader lacked messages"
