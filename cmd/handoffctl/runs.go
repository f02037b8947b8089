package main

import (
	"context"
	"fmt"
	"io"
	"time"

	"github.com/go-json-experiment/json"

	"worldengine/cmd/handoffctl/internal/client"
	"worldengine/runevents"
)

// runGetCommand shows the state of a run.
type runGetCommand struct {
	RunID string `arg:"" name:"run-id" help:"The run: what send prints, or the reply's header Run-Id."`
}

// Help is the command's long help.
func (runGetCommand) Help() string {
	return `Shows what became of a run: its status, its steps, what was asked and how it ended. With -o json: the
server's reply, a RunSnapshot.

Example:

    handoffctl run get 0d3c6a9e-4f0c-4a8e-9d5d-3d4c0f7dbb8a`
}

// Run shows the run.
func (c *runGetCommand) Run(ctx context.Context, a *app) error {
	server, err := a.connect()
	if err != nil {
		return err
	}
	defer server.Conn.Close()
	var run runevents.Snapshot
	raw, err := ask(ctx, server, client.RunGet, map[string]string{"runId": c.RunID}, &run)
	if err != nil {
		return err
	}
	if a.json() {
		return a.printRaw(raw)
	}
	return a.printTable(func(w io.Writer) {
		fmt.Fprintf(w, "run\t%s\n", show(run.RunID))
		fmt.Fprintf(w, "status\t%s\t%s\n", show(string(run.Status)), show(string(run.Metadata.Consistency)))
		fmt.Fprintf(w, "started\t%s\n", orDash(run.StartedAt))
		fmt.Fprintf(w, "ended\t%s\n", orDash(run.CompletedAt))
		fmt.Fprintf(w, "asked\t%s\n", orDash(string(run.Metadata.Started)))
		fmt.Fprintf(w, "outcome\t%s\n", orDash(string(run.Metadata.Outcome)))
		for _, step := range run.Steps {
			why := step.Reason
			if step.Error != nil {
				why = step.Error.Code + ": " + step.Error.Message
			}
			fmt.Fprintf(w, "step %d\t%s\t%s\t%s\n", step.LogicalAttemptID, show(step.StepID),
				show(string(step.Status)), show(why))
		}
	})
}

// runListCommand lists runs.
type runListCommand struct {
	Town  string    `help:"Only the runs of this town."`
	Since time.Time `help:"Only the runs that were persisted at this time or later (RFC 3339)." placeholder:"TIME"`
	Until time.Time `help:"Only the runs that were persisted before this time (RFC 3339)." placeholder:"TIME"`
	Limit int       `help:"How many runs to show at most, ${default} by default." default:"100"`
}

// Help is the command's long help.
func (runListCommand) Help() string {
	return `Lists runs in the order in which they were committed, a page at a time. With -o json:
{"runs": […]}, each a RunSnapshot.

Example:

    handoffctl run list --town town-threatened --since 2026-02-16T10:00:00Z`
}

// runPage is a reply of run.list.
type runPage struct {
	Runs []runevents.Snapshot `json:"runs"`
	Next uint64               `json:"next,omitzero"`
}

// maxRunPage is how many runs one request may ask for.
const maxRunPage = 200

// Run lists the runs.
func (c *runListCommand) Run(ctx context.Context, a *app) error {
	if c.Limit < 1 {
		return usagef("--limit must be at least 1, not %d", c.Limit)
	}
	server, err := a.connect()
	if err != nil {
		return err
	}
	defer server.Conn.Close()
	all := runPage{Runs: []runevents.Snapshot{}}
	for more := true; more && len(all.Runs) < c.Limit; more = all.Next > 0 {
		page, err := c.page(ctx, server, all.Next, min(c.Limit-len(all.Runs), maxRunPage))
		if err != nil {
			return err
		}
		all.Runs, all.Next = append(all.Runs, page.Runs...), page.Next
	}
	if a.json() {
		return a.printJSON(all)
	}
	return a.printTable(func(w io.Writer) {
		fmt.Fprintln(w, "RUN\tSTARTED\tSTATUS\tASKED\tOUTCOME")
		for i := range all.Runs {
			run := &all.Runs[i]
			fmt.Fprintf(w, "%s\t%s\t%s\t%s\t%s\n", show(run.RunID), orDash(run.StartedAt),
				show(string(run.Status)), orDash(command(run)), orDash(outcomeOf(run)))
		}
	})
}

func (c *runListCommand) page(ctx context.Context, server *client.Client, after uint64, limit int) (runPage, error) {
	request := struct {
		TownID string `json:"townId,omitzero"`
		From   string `json:"from,omitzero"`
		To     string `json:"to,omitzero"`
		After  uint64 `json:"after,omitzero"`
		Limit  int    `json:"limit"`
	}{TownID: c.Town, After: after, Limit: limit}
	if !c.Since.IsZero() {
		request.From = runevents.Timestamp(c.Since)
	}
	if !c.Until.IsZero() {
		request.To = runevents.Timestamp(c.Until)
	}
	var page runPage
	_, err := ask(ctx, server, client.RunList, request, &page)
	return page, err
}

// command is what a run was asked to do.
func command(run *runevents.Snapshot) string {
	var started struct {
		Command string `json:"command"`
		said    `json:",inline"`
	}
	_ = json.Unmarshal(run.Metadata.Started, &started) // a run of another producer may not say
	if started.Signal != "" {
		return started.String()
	}
	return started.Command
}

// said is what an operator's signal says in the payloads of its events.
type said struct {
	Signal  string `json:"signal"`
	TownID  string `json:"townId"`
	RunID   string `json:"runId"`
	ActorID string `json:"actorId"`
	Code    string `json:"code"`
}

// String says it in short.
func (s *said) String() string {
	about := whole(s.TownID)
	if s.RunID != "" {
		about = "run " + s.RunID
	}
	text := s.Signal + " " + about + " by " + s.ActorID
	if s.Code != "" {
		text += ": " + s.Code
	}
	return text
}

// outcomeOf is how a run ended.
func outcomeOf(run *runevents.Snapshot) string {
	var ended struct {
		Status     string `json:"status"`
		ReasonCode string `json:"reasonCode"`
	}
	_ = json.Unmarshal(run.Metadata.Outcome, &ended) // a run of another producer may not say
	if ended.ReasonCode == "" {
		return ended.Status
	}
	return ended.Status + " " + ended.ReasonCode
}

// ask makes a request and reads its answer, which it also returns as it came.
func ask(ctx context.Context, server *client.Client, verb string, request, answer any) ([]byte, error) {
	body, err := json.Marshal(request)
	if err != nil {
		return nil, usagef("the request cannot be sent: %v", err)
	}
	msg, err := server.Request(ctx, verb, body)
	if err != nil {
		return nil, err
	}
	if err := json.Unmarshal(msg.Data, answer); err != nil {
		return nil, fmt.Errorf("the server's answer cannot be read: %w", err)
	}
	return msg.Data, nil
}
