package main

import (
	"context"
	"fmt"
	"io"
	"strings"
	"time"

	"worldengine/cmd/handoffctl/internal/client"
	"worldengine/worldengine"
)

// signalFlags are what an operator says with every signal.
type signalFlags struct {
	Reason string `help:"Why, for the run events."`
	Actor  string `help:"Who you are, for the run events; operator by default." placeholder:"NAME"`
}

// signalRequest is the request of every signal, and of control.get.
type signalRequest struct {
	TownID         string `json:"townId,omitzero"`
	RunID          string `json:"runId,omitzero"`
	ActorID        string `json:"actorId,omitzero"`
	Reason         string `json:"reason,omitzero"`
	DrainTimeoutMs int64  `json:"drainTimeoutMs,omitzero"`
}

// controlReply is the reply of the control verbs and of run.cancel.
type controlReply struct {
	TownID    string                `json:"townId"`
	Status    string                `json:"status"`
	Substatus string                `json:"substatus"`
	Applying  int                   `json:"applying"`
	PausedBy  *worldengine.PausedBy `json:"pausedBy"`
	SignalID  string                `json:"signalId"`
}

const paused = "PAUSED"

// pauseCommand pauses a town, or the world.
type pauseCommand struct {
	Town         string        `help:"Pause this town alone; the whole world by default."`
	Signal       signalFlags   `embed:""`
	DrainTimeout time.Duration `help:"After how long it is an alert that commands are still being applied, ${default} by default." default:"5m"`
}

// Help is the command's long help.
func (pauseCommand) Help() string {
	return `Handoffs that come from now on wait, in their order, until handoffctl resume. A command that is
already being applied by a game server is not interrupted: the town drains, and handoffctl status says
when it has. It does not wait for that. A town that is paused by itself stays paused when the world is
resumed. handoffctl run list shows the runs that wait, PAUSED, and handoffctl run cancel ends one.

Example:

    handoffctl pause --town town-threatened --reason "the wall is being rebuilt by hand"`
}

// Run pauses the town, or the world.
func (c *pauseCommand) Run(ctx context.Context, a *app) error {
	if c.DrainTimeout < time.Millisecond {
		return usagef("--drain-timeout must be at least 1ms, not %s", c.DrainTimeout)
	}
	return a.signal(ctx, client.ControlPause, signalRequest{
		TownID: c.Town, ActorID: c.Signal.Actor, Reason: c.Signal.Reason,
		DrainTimeoutMs: c.DrainTimeout.Milliseconds(),
	}, func(r *controlReply) string {
		if r.Applying > 0 {
			return fmt.Sprintf("paused %s; it drains, %s", whole(r.TownID), stillApplying(r.Applying))
		}
		return "paused " + whole(r.TownID)
	})
}

// resumeCommand ends a pause.
type resumeCommand struct {
	Town   string      `help:"End the pause of this town; that of the world by default."`
	Signal signalFlags `embed:""`
}

// Help is the command's long help.
func (resumeCommand) Help() string {
	return `Ends a pause. What waits is judged in its order, by the state that the town has then: what was decided
from an older one is stale.

Example:

    handoffctl resume --town town-threatened`
}

// Run resumes the town, or the world.
func (c *resumeCommand) Run(ctx context.Context, a *app) error {
	return a.signal(ctx, client.ControlResume, signalRequest{
		TownID: c.Town, ActorID: c.Signal.Actor, Reason: c.Signal.Reason,
	}, func(r *controlReply) string {
		if r.Status == paused {
			return fmt.Sprintf("ended the pause of %s; the world is paused still, and the town with it", whole(r.TownID))
		}
		return "resumed " + whole(r.TownID)
	})
}

// statusCommand shows whether a town, or the world, is paused.
type statusCommand struct {
	Town string `help:"Show this town; the world by default."`
}

// Help is the command's long help.
func (statusCommand) Help() string {
	return `Shows whether a town, or the world, is paused, by whom and why, and how many commands game servers are
applying at this moment: of the world, those that the server which answers sees to. A town is paused when
the world is.

Example:

    handoffctl status --town town-threatened`
}

// Run shows the status.
func (c *statusCommand) Run(ctx context.Context, a *app) error {
	server, err := a.connect()
	if err != nil {
		return err
	}
	defer server.Conn.Close()
	var r controlReply
	raw, err := ask(ctx, server, client.ControlGet, signalRequest{TownID: c.Town}, &r)
	if err != nil {
		return err
	}
	if a.json() {
		return a.printRaw(raw)
	}
	return a.printTable(func(w io.Writer) {
		if r.TownID == "" {
			fmt.Fprintf(w, "world\t%s\n", show(a.flags.World))
		} else {
			fmt.Fprintf(w, "town\t%s\n", show(r.TownID))
		}
		fmt.Fprintf(w, "status\t%s\n", show(strings.TrimSpace(r.Status+" "+r.Substatus)))
		fmt.Fprintf(w, "applying\t%d\n", r.Applying)
		if by := r.PausedBy; by != nil {
			fmt.Fprintf(w, "paused by\t%s\n", show(by.ActorID))
			fmt.Fprintf(w, "since\t%s\n", by.At.Format(time.RFC3339))
			fmt.Fprintf(w, "reason\t%s\n", orDash(by.Reason))
			fmt.Fprintf(w, "signal\t%s\n", show(by.SignalID))
		}
	})
}

// runCancelCommand cancels a run that waits.
type runCancelCommand struct {
	RunID  string      `arg:"" name:"run-id" help:"The run: one that run list shows as PAUSED."`
	Signal signalFlags `embed:""`
}

// Help is the command's long help.
func (runCancelCommand) Help() string {
	return `Ends a run that waits for the end of a pause. The agent is answered RUN_CANCELLED; nothing was judged,
and the handoff's key stays free. A command that is being applied cannot be cancelled.

Example:

    handoffctl run cancel 0d3c6a9e-4f0c-4a8e-9d5d-3d4c0f7dbb8a --reason "it would come too late"`
}

// Run cancels the run.
func (c *runCancelCommand) Run(ctx context.Context, a *app) error {
	return a.signal(ctx, client.RunCancel, signalRequest{
		RunID: c.RunID, ActorID: c.Signal.Actor, Reason: c.Signal.Reason,
	}, func(*controlReply) string { return "cancelled run " + show(c.RunID) })
}

// signal gives a signal and prints its answer; say says it to people.
func (a *app) signal(ctx context.Context, verb string, request signalRequest, say func(*controlReply) string) error {
	server, err := a.connect()
	if err != nil {
		return err
	}
	defer server.Conn.Close()
	var r controlReply
	raw, err := ask(ctx, server, verb, request, &r)
	if err != nil {
		return err
	}
	if a.json() {
		return a.printRaw(raw)
	}
	return a.printf("%s (signal %s)\n", say(&r), show(r.SignalID))
}

// whole names a town, or the whole world for "".
func whole(townID string) string {
	if townID == "" {
		return "the world"
	}
	return show(townID)
}

func stillApplying(n int) string {
	if n == 1 {
		return "1 command is still being applied"
	}
	return fmt.Sprintf("%d commands are still being applied", n)
}
