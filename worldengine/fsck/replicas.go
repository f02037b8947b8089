package fsck

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

	"worldengine/worldengine/backoff"
	"worldengine/worldengine/commitlog"
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
	// Unread is why the node was not compared; "" if it was.
	Unread string `json:"unread,omitzero"`
}

// Range is the log sequences of messages, of which any node has the ones between First and Last.
type Range struct {
	First uint64 `json:"first"`
	Last  uint64 `json:"last"`
}

func (r Range) String() string {
	if r.First == r.Last {
		return fmt.Sprint(r.First)
	}
	return fmt.Sprintf("%d to %d", r.First, r.Last)
}

// compareReplicas compares the log of all nodes message by message. It moves no leader: each node is
// read by a consumer of its own.
func (c *worldCheck) compareReplicas(ctx context.Context) error {
	if !c.options.Replicas {
		return nil
	}
	nodes, err := currentNodes(ctx, c.log.Stream)
	if err != nil {
		return err
	}
	if len(nodes) == 0 {
		c.report.Notes = append(c.report.Notes, "the log has one replica: there is none to compare "+
			"it with")
		return nil
	}
	replicas, err := c.readReplicas(ctx, nodes, Range{1, c.report.LogEnd}, nil)
	// A message that was discarded, or came to a node, during a look does not count in the next one.
	for look := 1; err == nil && lacking(replicas) > 0 && look <= mostLooks; look++ {
		before := lacking(replicas)
		if err = backoff.Sleep(ctx, lookPause); err != nil {
			break
		}
		replicas, err = c.readReplicas(ctx, nodes, span(replicas), replicas)
		if lacking(replicas) == before {
			break
		}
	}
	if err != nil {
		return err
	}
	c.reportReplicas(replicas)
	return nil
}

// Looks at what replicas lack, until two agree.
const (
	lookPause = time.Second
	mostLooks = 30
)

// lacking counts the messages that replicas lack.
func lacking(replicas []Replica) (n int64) {
	for i := range replicas {
		n += replicas[i].LackCount
	}
	return n
}

// catchUp bounds the wait for nodes that have not applied the newest messages yet.
const catchUp = 10 * time.Second

// currentNodes returns the nodes of a stream, none if there is one replica. It waits a little until
// all are current.
func currentNodes(ctx context.Context, stream jetstream.Stream) ([]commitlog.Node, error) {
	for until := time.Now().Add(catchUp); ; {
		info, err := stream.Info(ctx)
		if err != nil {
			return nil, fmt.Errorf("%w: nodes of the log: %w", commitlog.ErrLogUnavailable, err)
		}
		nodes := commitlog.Nodes(info)
		if time.Now().After(until) || !slices.ContainsFunc(nodes, func(n commitlog.Node) bool {
			return n.Unread() != ""
		}) {
			return nodes, nil
		}
		if err := backoff.Sleep(ctx, 250*time.Millisecond); err != nil {
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

// has reports whether ranges, which are ascending, have a sequence.
func has(ranges []Range, seq uint64) bool {
	i, _ := slices.BinarySearchFunc(ranges, seq, func(r Range, seq uint64) int {
		return cmp.Compare(r.Last, seq)
	})
	return i < len(ranges) && ranges[i].First <= seq
}

// copyReader reads the replica of one node, message by message.
type copyReader struct {
	*Replica
	before *Replica // what it lacked in the last look; nil in the first one
	pull   func() (*jetstream.RawStreamMsg, error, bool)
	head   *jetstream.RawStreamMsg // nil at the end
	// lacks is set if the replica lacked the last message that was compared.
	lacks bool
}

// next reads the next message.
func (r *copyReader) next() {
	msg, err, ok := r.pull()
	if r.head = nil; ok && err == nil {
		r.head = msg
	}
	if err != nil {
		r.Unread = err.Error()
	}
}

// compare notes whether the replica has a message, and goes on behind that.
func (r *copyReader) compare(with *jetstream.RawStreamMsg) {
	here := r.head != nil && r.head.Sequence == with.Sequence
	same := here && r.head.Subject == with.Subject && bytes.Equal(r.head.Data, with.Data) &&
		maps.EqualFunc(r.head.Header, with.Header, slices.Equal)
	switch lacked := r.before == nil || has(r.before.Lacks, with.Sequence); {
	case same || !lacked:
		r.lacks = false
	case r.lacks:
		r.Lacks[len(r.Lacks)-1].Last = with.Sequence
		r.LackCount++
	default:
		r.Lacks = append(r.Lacks, Range{with.Sequence, with.Sequence})
		r.LackCount++
		r.lacks = true
	}
	if r.before == nil && same {
		r.Messages++
	}
	if here {
		r.next()
	}
}

// readReplicas compares the messages of a range, in which the nodes are read side by side. After a
// first look, only messages that a node lacked before count.
func (c *worldCheck) readReplicas(
	ctx context.Context, nodes []commitlog.Node, within Range, before []Replica,
) ([]Replica, error) {
	replicas := make([]Replica, len(nodes))
	var readers []*copyReader
	for i, node := range nodes {
		r := &copyReader{Replica: &replicas[i]}
		r.Node, r.Leads, r.Unread = node.Name, node.Leads, node.Unread()
		if before != nil {
			r.before = &before[i]
			r.Messages, r.Unread = r.before.Messages, r.before.Unread
		}
		if r.Unread != "" {
			continue
		}
		pull, stop := iter.Pull2(commitlog.ReadReplica(ctx, c.log.Stream, node.Name, within.First,
			within.Last, c.nc.MaxPayload()))
		defer stop()
		r.pull = pull
		r.next()
		readers = append(readers, r)
	}
	for {
		readers = slices.DeleteFunc(readers, func(r *copyReader) bool { return r.Unread != "" })
		first := firstMessage(readers)
		if first == nil {
			return replicas, ctx.Err()
		}
		for _, r := range readers {
			r.compare(first)
		}
		c.progress(first.Sequence)
	}
}

// firstMessage returns the message with the least sequence that a reader comes to; nil at the end.
func firstMessage(readers []*copyReader) (first *jetstream.RawStreamMsg) {
	for _, r := range readers {
		if r.head != nil && (first == nil || r.head.Sequence < first.Sequence) {
			first = r.head
		}
	}
	return first
}

// reportReplicas reports what each replica lacks.
func (c *worldCheck) reportReplicas(replicas []Replica) {
	for i := range replicas {
		r := &replicas[i]
		if r.Unread != "" {
			c.report.Notes = append(c.report.Notes, fmt.Sprintf("the node %s was not compared: %s", r.Node,
				r.Unread))
			continue
		}
		if r.LackCount > 0 {
			c.find(Finding{Kind: ReplicaDiffers, Sequence: r.Lacks[0].First,
				What: "the node " + r.Node + " lacks messages of the log, or has other bytes",
				Want: "the messages of the other nodes", Got: r.lackText()})
		}
		r.Lacks = r.Lacks[:min(len(r.Lacks), c.options.MaxFindings)]
	}
	c.report.Replicas = replicas
}

// lackText says how many messages a replica lacks, and which.
func (r *Replica) lackText() string {
	var ranges []string
	for _, lack := range r.Lacks[:min(len(r.Lacks), 5)] {
		ranges = append(ranges, lack.String())
	}
	if len(r.Lacks) > len(ranges) {
		ranges = append(ranges, "…")
	}
	return fmt.Sprintf("%d missing: %s", r.LackCount, strings.Join(ranges, ", "))
}

// adviceReplicas says which nodes to empty.
func (r *Report) adviceReplicas() string {
	var damaged []string
	whole := false
	for i := range r.Replicas {
		if replica := &r.Replicas[i]; replica.LackCount > 0 {
			damaged = append(damaged, replica.Node)
		} else if replica.Unread == "" {
			whole = true
		}
	}
	switch {
	case len(damaged) == 0:
		return ""
	case whole:
		return "findings in replicas: empty the node " + strings.Join(damaged, ", then the node ") +
			", as docs/repair.md says; it then fetches the log from a node that has all of it. NATS " +
			"does not do so by itself. Empty one node at a time"
	}
	return "findings in replicas: no node has the whole log, so EMPTY NONE: each has messages that " +
		"another one lacks. Copy the data of all nodes, and restore the last backup of the world, or " +
		"go on with the node that lacks least"
}
