package fsck

import (
	"context"
	"fmt"
	"strings"

	"worldengine/worldengine/internal/store/commitlog"
)

// compareReplicas compares the log of all nodes, and reports the messages that each lacks.
func (c *worldChecker) compareReplicas(ctx context.Context) error {
	if !c.options.Replicas {
		return nil
	}
	comparison := commitlog.Comparison{Stream: c.log.Stream, Largest: c.nc.MaxPayload(),
		Progress: c.progress}
	replicas, err := comparison.Run(ctx, commitlog.Range{First: 1, Last: c.report.LogEnd})
	if err != nil {
		return err
	}
	if len(replicas) == 0 {
		c.report.Notes = append(c.report.Notes, "the log has one replica: there is none to compare "+
			"it with")
	}
	for i := range replicas {
		r := &replicas[i]
		if r.SkipReason != "" {
			c.report.Notes = append(c.report.Notes, fmt.Sprintf("the node %s was not compared: %s", r.Node,
				r.SkipReason))
			continue
		}
		if r.LackCount > 0 {
			c.addFindings(Finding{Kind: ReplicaDiffers, Sequence: r.Lacks[0].First,
				What: "the node " + r.Node + " lacks messages of the log, or has other bytes",
				Want: "the messages of the other nodes", Got: r.Missing()})
		}
		r.Lacks = r.Lacks[:min(len(r.Lacks), c.options.MaxFindings)]
	}
	c.report.Replicas = replicas
	return nil
}

// adviceReplicas says which nodes to empty.
func (r *Report) adviceReplicas() string {
	var damaged []string
	whole := false
	for i := range r.Replicas {
		if replica := &r.Replicas[i]; replica.LackCount > 0 {
			damaged = append(damaged, replica.Node)
		} else if replica.SkipReason == "" {
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
