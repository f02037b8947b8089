package main

import (
	"context"
	"fmt"
	"io"
	"strings"

	"worldengine/handoff"
	"worldengine/worldengine/approval"
	"worldengine/worldengine/client"
	"worldengine/worldengine/messages"
)

// townCommands are the commands of towns.
type townCommands struct {
	Get     townGetCommand     `cmd:"" help:"Show a town, now or as a revision left it."`
	History townHistoryCommand `cmd:"" help:"List the revisions of a town: what changed it, when and by whom."`
	List    townListCommand    `cmd:"" help:"List the towns."`
	Put     townPutCommand     `cmd:"" help:"Create a town, or replace its state."`
	Patch   townPatchCommand   `cmd:"" help:"Change members of a town's state."`
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
type townListCommand struct{}

// Help is the command's long help.
func (townListCommand) Help() string {
	return `Lists all towns in the order of their ids: who applies their commands, whether they are
paused themselves, and the run whose command is being applied. With -o json it prints the server's
replies.

Example:

    handoffctl town list -o json`
}

// Run lists the towns.
func (c *townListCommand) Run(ctx context.Context, a *app, server *client.Client) error {
	if !a.json() {
		return a.printTowns(ctx, server)
	}
	all := messages.Towns{Towns: []client.TownSummary{}}
	for t, err := range server.Towns(ctx) {
		if err != nil {
			return err
		}
		all.Towns = append(all.Towns, t)
	}
	return a.printJSON(all)
}

// printTowns prints the towns for people.
func (a *app) printTowns(ctx context.Context, server *client.Client) error {
	towns, err := listTowns(ctx, server)
	if err != nil {
		return err
	}
	err = a.printTable(func(w io.Writer) {
		fmt.Fprintf(w, "TOWN\tEPOCH\tSNAPSHOT\tREVISION\tAPPLY\t%s\tPENDING\n",
			a.coloured("PAUSE", plain))
		for i := range towns {
			t := &towns[i]
			pause := a.coloured("-", plain)
			if t.Paused {
				pause = a.coloured("paused", warn)
			}
			pending := a.briefID(t.PendingRunID)
			if t.AbsentSince != "" {
				pending = strings.TrimPrefix(pending+", no plugin since "+t.AbsentSince, "-, ")
			}
			fmt.Fprintf(w, "%s\t%d\t%s\t%d\t%s\t%s\t%s\n", show(t.TownID), t.DecisionEpoch,
				a.briefID(t.SnapshotHash),
				t.Revision, orDash(t.Apply), pause, pending)
		}
	})
	if err == nil && len(towns) > maxDetails {
		err = a.printf("APPLY, PAUSE and PENDING are those of the first %d towns\n", maxDetails)
	}
	return err
}
