package main

import (
	"cmp"
	"context"
	"fmt"
	"time"

	"worldengine/worldengine/client"
	"worldengine/worldengine/messages"
	"worldengine/worldengine/wire"
)

// signalFlags are the flags of signals, acknowledgements and replays of an operator.
type signalFlags struct {
	Reason string `help:"Reason to record."`
	Actor  string `help:"Your name, to record. By default the user that signs in with a password, or else operator. A server with users records the user's name instead." placeholder:"NAME"`
}

// actor returns the name to record with a signal; if it is "", the server records operator.
func (s *signalFlags) actor(a *app) string {
	return cmp.Or(s.Actor, a.flags.Connection.UserOf(a.flags.Server))
}

// townFlag names the town that a command is about, as its argument or as a flag.
type townFlag struct {
	Name string `arg:"" optional:"" name:"town" help:"The town; ${without}."`
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
	Of           townFlag      `embed:"" set:"without=or --all for the whole world"`
	All          bool          `help:"Pause the whole world."`
	Signal       signalFlags   `embed:""`
	DrainTimeout time.Duration `help:"Raise an alert if commands are still being applied after this time, ${default} by default." default:"5m"`
}

func (pauseCommand) Help() string {
	return `Stops judging handoffs until handoffctl resume. Handoffs that arrive meanwhile wait in
their order for the server's --pause-wait; then their agents get TOWN_PAUSED or WORLD_PAUSED. A
command that a game server is already applying is not interrupted: the town drains. pause does not
wait for that; handoffctl status shows it. A town that was paused by itself stays paused when the
world is resumed. handoffctl run list shows the waiting runs as PAUSED, and handoffctl run cancel
ends one of them.

Example:

    handoffctl pause town-threatened --reason "the wall is being rebuilt by hand"`
}

func (c *pauseCommand) Run(ctx context.Context, a *app) error {
	town, err := c.Of.town()
	if err != nil {
		return err
	}
	if c.All == (town != "") {
		return usagef("pause needs a town, or --all for the whole world")
	}
	if c.DrainTimeout < time.Millisecond {
		return usagef("--drain-timeout must be at least 1ms, not %s", c.DrainTimeout)
	}
	request := messages.Signal{TownID: town, DrainTimeoutMs: c.DrainTimeout.Milliseconds()}
	return a.signal(ctx, wire.ControlPause, &c.Signal, request, func(r *messages.Control) string {
		text := "paused " + whole(r.TownID)
		switch {
		case r.Applying == 1:
			text += "; it drains, 1 command is still being applied"
		case r.Applying > 1:
			text += fmt.Sprintf("; it drains, %d commands are still being applied", r.Applying)
		}
		return text
	})
}

// resumeCommand ends a pause.
type resumeCommand struct {
	Of     townFlag    `embed:"" set:"without=the whole world by default"`
	All    bool        `help:"End the pause of the whole world, which is the default without a town."`
	Signal signalFlags `embed:""`
}

func (resumeCommand) Help() string {
	return `Ends a pause. The server then judges the waiting handoffs in their order. A handoff is
stale if the town has changed since the handoff was made.

Example:

    handoffctl resume town-threatened`
}

func (c *resumeCommand) Run(ctx context.Context, a *app) error {
	town, err := c.Of.town()
	if err != nil {
		return err
	}
	if c.All && town != "" {
		return usagef("resume takes a town, or --all for the whole world")
	}
	request := messages.Signal{TownID: town}
	return a.signal(ctx, wire.ControlResume, &c.Signal, request, func(r *messages.Control) string {
		if r.Status == messages.Paused {
			return fmt.Sprintf("ended the pause of %s; the world is paused still, and the town "+
				"with it", whole(r.TownID))
		}
		return "resumed " + whole(r.TownID)
	})
}

// runCancelCommand cancels a run that waits.
type runCancelCommand struct {
	RunID  string      `arg:"" name:"run-id" help:"The run, which run list shows as PAUSED, PENDING or RUNNING: its id, or the beginning of it."`
	Force  bool        `help:"Cancel the run even if the game may have its command. Look at the game afterwards."`
	Signal signalFlags `embed:""`
}

func (runCancelCommand) Help() string {
	return `Ends a run that waits: for the end of a pause (PAUSED in run list), for a command that a
game server applies (PENDING), or for a game server that is away (RUNNING; town get names the run).
The server answers the agent with RUN_CANCELLED, and the handoff's key stays free.

If the game may have the command, the server refuses (RUN_IN_HAND). With --force it cancels the run,
leaves the town as it was, and raises the alert APPLY_IN_DOUBT: look at the game, and put the town's
true state with town put.

You may give the beginning of an id that no other run has; in a world of more than 10,000 runs
cancel requires the whole id.

Example:

    handoffctl run cancel 0d3c6a9e-4f0c-4a8e-9d5d-3d4c0f7dbb8a --reason "it would come too late"`
}

func (c *runCancelCommand) Run(ctx context.Context, a *app) error {
	runID, err := a.runID(ctx, c.RunID, true)
	if err != nil {
		return err
	}
	request := messages.Signal{RunID: runID, Force: c.Force}
	return a.signal(ctx, wire.RunCancel, &c.Signal, request, func(*messages.Control) string {
		return "cancelled run " + show(runID)
	})
}

// runRetryCommand tries a run again.
type runRetryCommand struct {
	RunID  string      `arg:"" name:"run-id" help:"The run, which failed with PLUGIN_UNAVAILABLE: its id, or the beginning of it."`
	Signal signalFlags `embed:""`
}

func (runRetryCommand) Help() string {
	return `Judges the handoff of a run again, in a new run, if the run failed because no plugin or
console could be reached (PLUGIN_UNAVAILABLE). Use it when the game is back and the town has not
changed since. If the handoff is accepted, its new result replaces the key's. If no result is
printed after some seconds, the handoff waits, or its command is being applied: handoffctl run get
shows how it ends.

The server refuses a run whose command may have been applied (RUN_IN_DOUBT), a run whose retry was
executed, failed or is being applied (RUN_RETRIED), and every other run (RUN_NOT_RETRYABLE). After a
retry that was stale, rejected or cancelled you may retry the run again.

You may give the beginning of an id that no other run has; in a world of more than 10,000 runs retry
requires the whole id.

Example:

    handoffctl run retry 0d3c6a9e-4f0c-4a8e-9d5d-3d4c0f7dbb8a --reason "the game server is back"`
}

func (c *runRetryCommand) Run(ctx context.Context, a *app) error {
	runID, err := a.runID(ctx, c.RunID, true)
	if err != nil {
		return err
	}
	request := messages.Signal{RunID: runID, Reason: c.Signal.Reason, ActorID: c.Signal.actor(a)}
	return ask(ctx, a, wire.RunRetry, request, func(t table, got *client.Retried) {
		if got.Result == nil {
			t.linef("run %s tries %s again; it has no result yet", show(got.RunID), show(runID))
		} else {
			t.ended(got.Result, got.RunID)
		}
	})
}

// signal gives a signal and prints its answer, for people as say writes it.
func (a *app) signal(
	ctx context.Context, verb wire.Verb, by *signalFlags, request messages.Signal,
	say func(*messages.Control) string,
) error {
	request.ActorID, request.Reason = by.actor(a), by.Reason
	return ask(ctx, a, verb, request, func(t table, r *messages.Control) {
		t.linef("%s (signal %s)", say(r), show(r.SignalID))
	})
}

// whole names a town, or the whole world for "".
func whole(townID string) string {
	if townID == "" {
		return "the world"
	}
	return show(townID)
}
