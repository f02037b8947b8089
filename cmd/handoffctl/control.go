package main

import (
	"cmp"
	"context"
	"fmt"
	"io"
	"time"

	"worldengine/cmd/internal/counted"
	"worldengine/worldengine/client"
	"worldengine/worldengine/messages"
	"worldengine/worldengine/wire"
)

// signalFlags are what an operator says with every signal.
type signalFlags struct {
	Reason string `help:"Why; it is recorded with what the command does."`
	Actor  string `help:"Who you are; it is recorded with what the command does. The user that signs in with a password by default, or else operator; a server with users records its own name for you." placeholder:"NAME"`
}

// actor returns who gives a signal; "" where that is not known, which the server calls operator.
func (s *signalFlags) actor(a *app) string {
	return cmp.Or(s.Actor, a.flags.Connection.UserOf(a.flags.Server))
}

// townFlag names the town that a command is about, as its argument or as a flag.
type townFlag struct {
	Name string `arg:"" optional:"" name:"town" help:"The town; the whole world by default."`
	Town string `help:"The town."`
}

// town returns the town; "" for the world.
func (f *townFlag) town() (string, error) {
	if f.Name != "" && f.Town != "" && f.Name != f.Town {
		return "", usagef("the argument names the town %s, and --town %s: give one of them",
			show(f.Name), show(f.Town))
	}
	return cmp.Or(f.Name, f.Town), nil
}

// pauseCommand pauses a town, or the world.
type pauseCommand struct {
	Of           townFlag      `embed:""`
	All          bool          `help:"Pause the whole world."`
	Signal       signalFlags   `embed:""`
	DrainTimeout time.Duration `help:"Raise an alert if commands are still being applied after this time, ${default} by default." default:"5m"`
}

// Help is the command's long help.
func (pauseCommand) Help() string {
	return `Judges no handoff until handoffctl resume. Handoffs that come meanwhile wait, in their
order, for the server's --pause-wait; then their agents get TOWN_PAUSED or WORLD_PAUSED. A game
server that is already applying a command is not interrupted: the town drains, and handoffctl status
shows when that has ended; pause does not wait for it. A town that was paused by itself stays paused
when the world is resumed. handoffctl run list shows the waiting runs as PAUSED, and handoffctl run
cancel ends one of them.

Example:

    handoffctl pause town-threatened --reason "the wall is being rebuilt by hand"`
}

// Run pauses the town, or the world.
func (c *pauseCommand) Run(ctx context.Context, a *app) error {
	if town, err := c.Of.town(); err == nil && c.All == (town != "") {
		return usagef("pause needs a town, or --all for the whole world")
	}
	if c.DrainTimeout < time.Millisecond {
		return usagef("--drain-timeout must be at least 1ms, not %s", c.DrainTimeout)
	}
	town, err := c.Of.town()
	if err != nil {
		return err
	}
	return a.signal(ctx, wire.ControlPause, messages.Signal{
		TownID: town, ActorID: c.Signal.actor(a), Reason: c.Signal.Reason,
		DrainTimeoutMs: c.DrainTimeout.Milliseconds(),
	}, func(r *messages.Control) string {
		if r.Applying > 0 {
			return fmt.Sprintf("paused %s; it drains, %s", whole(r.TownID),
				stillApplying(r.Applying))
		}
		return "paused " + whole(r.TownID)
	})
}

// resumeCommand ends a pause.
type resumeCommand struct {
	Of     townFlag    `embed:""`
	Signal signalFlags `embed:""`
}

// Help is the command's long help.
func (resumeCommand) Help() string {
	return `Ends a pause. The server then judges the waiting handoffs in their order, against the
state that the town has by then: a handoff that was made from an older state is stale.

Example:

    handoffctl resume town-threatened`
}

// Run resumes the town, or the world.
func (c *resumeCommand) Run(ctx context.Context, a *app) error {
	town, err := c.Of.town()
	if err != nil {
		return err
	}
	return a.signal(ctx, wire.ControlResume, messages.Signal{
		TownID: town, ActorID: c.Signal.actor(a), Reason: c.Signal.Reason,
	}, func(r *messages.Control) string {
		if r.Status == messages.Paused {
			return fmt.Sprintf("ended the pause of %s; the world is paused still, and the town "+
				"with it", whole(r.TownID))
		}
		return "resumed " + whole(r.TownID)
	})
}

// statusCommand shows how the world is, or whether a town is paused.
type statusCommand struct {
	Of townFlag `embed:""`
}

// Help is the command's long help.
func (statusCommand) Help() string {
	return `Shows the state of a world: its pause, and how many towns are paused, being applied to,
without their plugin, waiting for approval or in doubt; the plugins that are away, with their next
request; the proposals that wait for approval; the open alerts; the server that writes and those
that stand by, with their versions and how far each has followed the log; the bytes of the world's
streams, and the free room of the disk. Parts that the user may not see are listed as not known.

Exits 1 when something needs attention, and says what: a server that stores nothing, or has little
room (less than four times of what is to stay free); an index or a bus that stays behind the log for
2 s; a town that is damaged, or whose plugin is away; dead letters; an alert of severity P1 of
the last hour that is not acknowledged (alerts ack). A pause is nothing of that kind.

With a town it shows the pause of one town, and how many of its commands a game server is applying.
A town is paused while the world is.

Examples:

    handoffctl status
    handoffctl status town-threatened`
}

// Run shows the status.
func (c *statusCommand) Run(ctx context.Context, a *app, server *client.Client) error {
	town, err := c.Of.town()
	if err != nil {
		return err
	}
	if town == "" {
		return a.showWorld(ctx, server)
	}
	var r messages.Control
	raw, err := server.Ask(ctx, wire.ControlGet, messages.Signal{TownID: town}, &r)
	if err != nil {
		return err
	}
	return a.printAnswer(raw, func(w io.Writer) {
		fmt.Fprintf(w, "town\t%s\n", show(r.TownID))
		a.printPause(w, &r)
	})
}

// showWorld shows the status of the world.
func (a *app) showWorld(ctx context.Context, server *client.Client) error {
	var s messages.WorldReport
	raw, err := server.Ask(ctx, wire.WorldStatus, messages.WorldStatus{Damage: true}, &s)
	if err != nil {
		return err
	}
	err = a.printAnswer(raw, func(w io.Writer) { a.printWorld(w, &s) })
	if err == nil && !s.Healthy {
		return &failedError{"the world " + s.World + " needs attention: " +
			counted.Of(len(s.Problems), "problem")}
	}
	return err
}

// runCancelCommand cancels a run that waits.
type runCancelCommand struct {
	RunID  string      `arg:"" name:"run-id" help:"The run: one that run list shows as PAUSED, PENDING or RUNNING."`
	Force  bool        `help:"Cancel it also where its game may have the command; look at the game then."`
	Signal signalFlags `embed:""`
}

// Help is the command's long help.
func (runCancelCommand) Help() string {
	return `Ends a run that waits: for the end of a pause (run list shows it as PAUSED), behind a
command that a game server applies (PENDING), or for a game server that is away (RUNNING; town get
names it). The server answers the agent with RUN_CANCELLED, and the handoff's key stays free.

Where the game may have the command the server refuses (RUN_IN_HAND). With --force it cancels the
run all the same, leaves the town as it was, and raises the alert APPLY_IN_DOUBT: look at the game,
and put the town's true state.

The beginning of an id will do where no other run has it; in a world of more than 10,000 runs cancel
takes whole ids alone.

Example:

    handoffctl run cancel 0d3c6a9e-4f0c-4a8e-9d5d-3d4c0f7dbb8a --reason "it would come too late"`
}

// Run cancels the run.
func (c *runCancelCommand) Run(ctx context.Context, a *app) error {
	runID, err := a.runID(ctx, c.RunID, true)
	if err != nil {
		return err
	}
	return a.signal(ctx, wire.RunCancel, messages.Signal{
		RunID: runID, ActorID: c.Signal.actor(a), Reason: c.Signal.Reason, Force: c.Force,
	}, func(*messages.Control) string { return "cancelled run " + show(runID) })
}

// signal gives a signal and prints its answer; say says it to people.
func (a *app) signal(
	ctx context.Context, verb wire.Verb, request messages.Signal, say func(*messages.Control) string,
) error {
	server, err := a.connect()
	if err != nil {
		return err
	}
	var r messages.Control
	raw, err := server.Ask(ctx, verb, request, &r)
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
