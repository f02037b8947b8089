package main

import (
	"context"
	"fmt"
	"io"

	"github.com/go-json-experiment/json"

	"worldengine/cmd/handoffctl/internal/client"
	"worldengine/handoff"
	"worldengine/worldengine"
	"worldengine/worldengine/town"
)

// townCommands are the commands of towns.
type townCommands struct {
	Get   townGetCommand   `cmd:"" help:"Show a town."`
	List  townListCommand  `cmd:"" help:"List the towns."`
	Put   townPutCommand   `cmd:"" help:"Create a town, or replace its state."`
	Patch townPatchCommand `cmd:"" help:"Change members of a town's state."`
}

// townGetCommand shows a town.
type townGetCommand struct {
	Town string `arg:"" help:"The town's id."`
}

// Help is the command's long help.
func (townGetCommand) Help() string {
	return `Shows the state of a town. With -o json: the server's reply, whose member snapshot is the
snapshot.v1; town put and new --snapshot take that reply as it is.

Example:

    handoffctl town get town-threatened`
}

// Run shows the town.
func (c *townGetCommand) Run(ctx context.Context, a *app) error {
	server, err := a.connect()
	if err != nil {
		return err
	}
	defer server.Conn.Close()
	got, raw, err := getTown(ctx, server, c.Town)
	if err != nil {
		return err
	}
	if a.json() {
		return a.printRaw(raw)
	}
	return a.printTown(got)
}

// townReply is the reply of town.get, town.put and town.patch.
type townReply struct {
	worldengine.Summary `json:",inline"`
	Snapshot            town.Snapshot `json:"snapshot"`
	Apply               string        `json:"apply"`
	PendingRunID        string        `json:"pendingRunId"`
	Paused              bool          `json:"paused"`
}

func getTown(ctx context.Context, server *client.Client, id string) (*townReply, []byte, error) {
	body, err := json.Marshal(map[string]string{"townId": id})
	if err != nil {
		return nil, nil, usagef("the town's id cannot be sent: %v", err)
	}
	return askTown(ctx, server, client.TownGet, body)
}

func askTown(ctx context.Context, server *client.Client, verb string, body []byte) (*townReply, []byte, error) {
	msg, err := server.Request(ctx, verb, body)
	if err != nil {
		return nil, nil, err
	}
	got := new(townReply)
	if err := json.Unmarshal(msg.Data, got); err != nil {
		return nil, nil, fmt.Errorf("the server's answer cannot be read: %w", err)
	}
	return got, msg.Data, nil
}

func (a *app) printTown(t *townReply) error {
	s := &t.Snapshot
	return a.printTable(func(w io.Writer) {
		fmt.Fprintf(w, "town\t%s\n", show(s.TownID))
		fmt.Fprintf(w, "epoch\t%d (the day)\n", t.DecisionEpoch)
		fmt.Fprintf(w, "snapshot\t%s\n", t.SnapshotHash)
		fmt.Fprintf(w, "revision\t%d\n", t.Revision)
		if t.Apply != "" { // an older server does not say
			fmt.Fprintf(w, "apply\t%s\n", show(t.Apply))
		}
		if t.PendingRunID != "" {
			fmt.Fprintf(w, "applying\tthe command of run %s\n", show(t.PendingRunID))
		}
		if t.Paused {
			fmt.Fprintf(w, "paused\tyes (see handoffctl status --town)\n")
		}
		if s.Mission == nil {
			fmt.Fprintf(w, "mission\t-\n")
		} else {
			fmt.Fprintf(w, "mission\t%s: %s\n", show(s.Mission.ID), show(s.Mission.Title))
		}
		fmt.Fprintf(w, "pressure\tthreat %s, scarcity %s, hope %s, dread %s\n", number(s.Pressure.Threat),
			number(s.Pressure.Scarcity), number(s.Pressure.Hope), number(s.Pressure.Dread))
		for i := range s.SideQuests {
			fmt.Fprintf(w, "side quest\t%s: %s\n", show(s.SideQuests[i].ID), show(s.SideQuests[i].Title))
		}
		for i := range s.Projects {
			p := &s.Projects[i]
			fmt.Fprintf(w, "project\t%s: %s, %s, progress %s\n",
				show(p.ID), show(p.Name), p.Status, number(p.Progress))
		}
		if s.LatestNetherEvent != nil {
			fmt.Fprintf(w, "nether event\t%s\n", show(*s.LatestNetherEvent))
		}
	})
}

func number(f float64) string { return string(handoff.AppendNumber(nil, f)) }

// townListCommand lists the towns.
type townListCommand struct{}

// Help is the command's long help.
func (townListCommand) Help() string {
	return `Lists all towns in the order of their ids; a page at a time is asked for.

Example:

    handoffctl town list -o json`
}

// townPage is a reply of town.list.
type townPage struct {
	Towns []worldengine.Summary `json:"towns"`
	Next  string                `json:"next,omitzero"`
}

// Run lists the towns.
func (c *townListCommand) Run(ctx context.Context, a *app) error {
	server, err := a.connect()
	if err != nil {
		return err
	}
	defer server.Conn.Close()
	all := townPage{Towns: []worldengine.Summary{}}
	for more := true; more; more = all.Next != "" {
		page, err := listTowns(ctx, server, all.Next)
		if err != nil {
			return err
		}
		if page.Next != "" && page.Next <= all.Next {
			return fmt.Errorf("the server's list comes back to %q after %q", page.Next, all.Next)
		}
		all.Towns, all.Next = append(all.Towns, page.Towns...), page.Next
	}
	if a.json() {
		return a.printJSON(all)
	}
	return a.printTable(func(w io.Writer) {
		fmt.Fprintln(w, "TOWN\tEPOCH\tSNAPSHOT\tREVISION")
		for _, t := range all.Towns {
			fmt.Fprintf(w, "%s\t%d\t%s\t%d\n", show(t.TownID), t.DecisionEpoch, t.SnapshotHash, t.Revision)
		}
	})
}

// listTowns asks for the page of towns after an id, as many as the server chooses.
func listTowns(ctx context.Context, server *client.Client, after string) (townPage, error) {
	var page townPage
	body, err := json.Marshal(struct {
		After string `json:"after,omitzero"`
	}{after})
	if err != nil {
		return page, fmt.Errorf("the next page cannot be asked for: %w", err)
	}
	msg, err := server.Request(ctx, client.TownList, body)
	if err != nil {
		return page, err
	}
	if err := json.Unmarshal(msg.Data, &page); err != nil {
		return page, fmt.Errorf("the server's answer cannot be read: %w", err)
	}
	return page, nil
}
