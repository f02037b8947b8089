package main

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"strconv"
	"strings"
	"text/tabwriter"

	"worldengine/handoff"
	"worldengine/worldengine/client"
)

// resultGetCommand looks up the result of an accepted handoff.
type resultGetCommand struct {
	Key  string `arg:"" help:"The idempotency key: the handoff's proposalId."`
	Town string `help:"The town that accepted the key; without it, the last one that did." placeholder:"ID"`
}

// Help is the command's long help.
func (resultGetCommand) Help() string {
	return `Shows the result of an accepted handoff, as long as the log keeps its commit. A rejected or
stale handoff does not consume its key, so its result is not found by it. A key belongs to its town:
give --town if several towns may have used the key.

Example:

    handoffctl result get proposal_26ab0db90d72e28ad0ba1e22ee510510a2d6c1a1f1e5b0f3c3ba9e0b3f7bd3a1`
}

// Run looks the result up.
func (c *resultGetCommand) Run(ctx context.Context, a *app, server *client.Client) error {
	found, err := server.Result(ctx, c.Key, c.Town)
	if err != nil {
		return err
	}
	if a.json() {
		return a.printJSON(answerOf(found))
	}
	return a.printResult(found.RunID, found.Result)
}

// printResult prints a result for people.
func (a *app) printResult(runID string, r *handoff.Result) error {
	return a.printTable(func(w io.Writer) {
		fmt.Fprintf(w, "status\t%s\n", a.coloured(fmt.Sprintf("%s (%s)", r.Status, r.ReasonCode),
			resultTone(r.Status)))
		fmt.Fprintf(w, "command\t%s\n", show(r.Command))
		if r.ReasonCode == handoff.ReasonApprovalRequired {
			fmt.Fprintf(w, "handoff\t%s\n", r.HandoffID) // for handoffctl approve
		}
		fmt.Fprintf(w, "result\t%s\n", r.ResultID)
		if runID != "" {
			fmt.Fprintf(w, "run\t%s\n", runID)
		}
		if of := r.Evaluation.DuplicateCheck.DuplicateOf; of != nil {
			fmt.Fprintf(w, "duplicate of\t%s\n", *of)
		}
		if stale := r.Evaluation.StaleCheck; stale.Evaluated && !stale.Passed {
			fmt.Fprintf(w, "expected\t%s\n", state(&r.DecisionEpoch, &r.SnapshotHash))
			fmt.Fprintf(w, "actual\t%s\n",
				state(stale.ActualDecisionEpoch, stale.ActualSnapshotHash))
		}
		for _, f := range r.Evaluation.Preconditions.Failures {
			fmt.Fprintf(w, "failure\t%s: %s\n", f.Kind, show(f.Detail))
		}
		if r.WorldState != nil {
			fmt.Fprintf(w, "world\t%s\n",
				state(r.WorldState.DecisionEpoch, r.WorldState.SnapshotHash))
		}
	})
}

// state renders what identifies a town's state; either may be nil.
func state(epoch *int64, hash *string) string {
	e, h := "unknown", "unknown"
	if epoch != nil {
		e = strconv.FormatInt(*epoch, 10)
	}
	if hash != nil {
		h = *hash
	}
	return "epoch " + e + ", snapshot " + h
}

// printTable prints the tab-separated cells that fill writes, in columns.
func (a *app) printTable(fill func(w io.Writer)) error {
	var rows bytes.Buffer
	w := tabwriter.NewWriter(&rows, 0, 0, 2, ' ', 0)
	fill(w)
	if err := w.Flush(); err != nil {
		return err
	}
	text := rows.String()
	if strings.Count(text, "\n") == 1 && strings.Contains(text, "  ") && strings.ToUpper(text) == text {
		text += "none\n" // behind the names of the columns
	}
	_, err := io.WriteString(a.out, text)
	return err
}
