package main

import (
	"context"
	"fmt"
	"io"
	"strings"

	"worldengine/cmd/internal/counted"
	"worldengine/handoff"
	"worldengine/worldengine/approval"
	"worldengine/worldengine/client"
	"worldengine/worldengine/messages"
)

// townCommands are the commands of towns.
type townCommands struct {
	Get     townGetCommand     `cmd:"" help:"Show a town, now or as a revision left it."`
	History townHistoryCommand `cmd:"" help:"List the revisions of a town: what changed it, when and by whom."`
	Diff    townDiffCommand    `cmd:"" help:"Compare two states of towns."`
	List    townListCommand    `cmd:"" help:"List the towns."`
	Put     townPutCommand     `cmd:"" help:"Create a town, or replace its state."`
	Patch   townPatchCommand   `cmd:"" help:"Change members of a town's state."`
	Remove  townRemoveCommand  `cmd:"" help:"Remove a town."`
}

// townGetCommand shows a town.
type townGetCommand struct {
	Town     string `arg:"" help:"The town's id."`
	Revision uint64 `help:"Show the town as this revision left it, one that town history lists." placeholder:"N"`
}

// Help is the command's long help.
func (townGetCommand) Help() string {
	return `Shows the state of a town. With -o json it prints the server's reply, whose member
snapshot is the snapshot.v1; town put and new --snapshot accept that reply as it is.

Example:

    handoffctl town get town-threatened`
}

// Run shows the town.
func (c *townGetCommand) Run(ctx context.Context, a *app, server *client.Client) error {
	got, err := server.TownAt(ctx, c.Town, c.Revision)
	if err != nil {
		return err
	}
	if a.json() {
		return a.printRaw(got.JSON)
	}
	return a.printTown(got)
}

func (a *app) printTown(t *client.Town) error {
	s := t.Snapshot
	return a.printTable(func(w io.Writer) {
		fmt.Fprintf(w, "town\t%s\n", show(s.TownID))
		fmt.Fprintf(w, "epoch\t%d (the day)\n", t.DecisionEpoch)
		fmt.Fprintf(w, "snapshot\t%s\n", t.SnapshotHash)
		fmt.Fprintf(w, "revision\t%d\n", t.Revision)
		fmt.Fprintf(w, "apply\t%s\n", show(t.Apply))
		if len(t.Approval) > 0 {
			policy := approval.Policy{Types: t.Approval}
			fmt.Fprintf(w, "approval\tof %s\n", show(policy.String()))
		}
		if t.PendingRunID != "" {
			fmt.Fprintf(w, "applying\tthe command of run %s\n", show(t.PendingRunID))
		}
		if t.PluginAbsentSince != "" {
			fmt.Fprintf(w, "plugin\tnone since %s%s\n", show(t.PluginAbsentSince),
				absenceOf(t.PluginAbsent))
		}
		if t.Paused {
			fmt.Fprintf(w, "paused\tyes (see handoffctl status --town)\n")
		}
		if s.Mission == nil {
			fmt.Fprintf(w, "mission\t-\n")
		} else {
			fmt.Fprintf(w, "mission\t%s: %s\n", show(s.Mission.ID), show(s.Mission.Title))
		}
		fmt.Fprintf(w, "pressure\tthreat %s, scarcity %s, hope %s, dread %s\n",
			number(s.Pressure.Threat),
			number(s.Pressure.Scarcity), number(s.Pressure.Hope), number(s.Pressure.Dread))
		for i := range s.SideQuests {
			fmt.Fprintf(w, "side quest\t%s: %s\n", show(s.SideQuests[i].ID),
				show(s.SideQuests[i].Title))
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
type townListCommand struct {
	State     string `help:"Only the towns in this state: ${enum}." enum:",paused,applying,noPlugin,waiting,inDoubt" default:"" placeholder:"STATE"`
	Sort      string `help:"Order: by id, the highest day first (day), or the last change first (changed)." enum:"id,day,changed" default:"id" placeholder:"ORDER"`
	Text      string `help:"Only the towns with this in the id, or with a snapshot hash that begins so." placeholder:"TEXT"`
	limitFlag `embed:""`
}

// Help is the command's long help.
func (townListCommand) Help() string {
	return `Lists towns: who applies their commands, the run whose command is being applied, and their states:
paused by themselves, applying a command, noPlugin since the plugin is away, waiting for a person's
approval, or inDoubt since a command that failed may be applied. With -o json it prints the
server's replies as one.

Example:

    handoffctl town list --state waiting --sort changed`
}

// Run lists the towns.
func (c *townListCommand) Run(ctx context.Context, a *app, server *client.Client) error {
	all := messages.Towns{Towns: []client.TownSummary{}}
	query := messages.TownList{State: c.State, Sort: c.Sort, Text: c.Text}
	for t, err := range firstOf(server.Towns(ctx, query), c.Limit) {
		if err != nil {
			return err
		}
		all.Towns = append(all.Towns, t)
	}
	return a.printAnswer(&all, func(w io.Writer) {
		fmt.Fprintf(w, "TOWN\tEPOCH\tSNAPSHOT\tREVISION\tAPPLY\t%s\tPENDING\n",
			a.coloured("STATE", plain))
		for i := range all.Towns {
			t := &all.Towns[i]
			state := a.coloured("-", plain)
			if states := statesOf(t); states != "" {
				state = a.coloured(states, warn)
			}
			fmt.Fprintf(w, "%s\t%d\t%s\t%d\t%s\t%s\t%s\n", show(t.TownID), t.DecisionEpoch,
				a.briefID(t.SnapshotHash), t.Revision, orDash(t.Apply), state,
				a.briefID(t.PendingRunID))
		}
	})
}

// statesOf names the states of a town that a person may have to look after, "" for none.
func statesOf(t *client.TownSummary) string {
	var states []string
	if t.Paused {
		states = append(states, messages.TownPaused)
	}
	if t.PluginAbsentSince != "" {
		states = append(states, "no plugin since "+show(t.PluginAbsentSince))
	}
	if t.Waiting > 0 {
		states = append(states, counted.Of(t.Waiting, "proposal")+" waiting")
	}
	if t.InDoubt {
		states = append(states, "in doubt")
	}
	return strings.Join(states, ", ")
}
