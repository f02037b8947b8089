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

// signalFlags are the flags of every signal of an operator.
type signalFlags struct {
	Reason string `help:"Why; it is recorded with what the command does."`
	Actor  string `help:"Who you are; it is recorded with what the command does. The user that signs in with a password by default, or else operator; a server with users records its own name for you." placeholder:"NAME"`
}

// actor returns who gives a signal; "" if that is not known, which the server calls operator.
func (s *signalFlags) actor(a *app) string {
	return cmp.Or(s.Actor, a.flags.Connection.UserOf(a.flags.Server))
}

// request returns the request of a signal about a town, the world or a run.
func (s *signalFlags) request(a *app) messages.Signal {
	return messages.Signal{ActorID: s.actor(a), Reason: s.Reason}
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
	return `Judges no handoff until handoffctl resume. Handoffs that come meanwhile wait, in their
order, for the server's --pause-wait; then their agents get TOWN_PAUSED or WORLD_PAUSED. A game
server that is already applying a command is not interrupted: the town drains, and handoffctl status
shows when that has ended; pause does not wait for it. A town that was paused by itself stays paused
when the world is resumed. handoffctl run list shows the waiting runs as PAUSED, and handoffctl run
cancel ends one of them.

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
	request := c.Signal.request(a)
	request.TownID, request.DrainTimeoutMs = town, c.DrainTimeout.Milliseconds()
	return a.signal(ctx, wire.ControlPause, request, func(r *messages.Control) string {
		if r.Applying > 0 {
			return fmt.Sprintf("paused %s; it drains, %s", whole(r.TownID), stillApplying(r.Applying))
		}
		return "paused " + whole(r.TownID)
	})
}

// resumeCommand ends a pause.
type resumeCommand struct {
	Of     townFlag    `embed:"" set:"without=the whole world by default"`
	Signal signalFlags `embed:""`
}

func (resumeCommand) Help() string {
	return `Ends a pause. The server then judges the waiting handoffs in their order, against the
state that the town has by then: a handoff that was made from an older state is stale.

Example:

    handoffctl resume town-threatened`
}

func (c *resumeCommand) Run(ctx context.Context, a *app) error {
	town, err := c.Of.town()
	if err != nil {
		return err
	}
	request := c.Signal.request(a)
	request.TownID = town
	return a.signal(ctx, wire.ControlResume, request, func(r *messages.Control) string {
		if r.Status == messages.Paused {
			return fmt.Sprintf("ended the pause of %s; the world is paused still, and the town "+
				"with it", whole(r.TownID))
		}
		return "resumed " + whole(r.TownID)
	})
}

// runCancelCommand cancels a run that waits.
type runCancelCommand struct {
	RunID  string      `arg:"" name:"run-id" help:"The run: one that run list shows as PAUSED, PENDING or RUNNING."`
	Force  bool        `help:"Cancel it even if its game may have the command; look at the game then."`
	Signal signalFlags `embed:""`
}

func (runCancelCommand) Help() string {
	return `Ends a run that waits: for the end of a pause (run list shows it as PAUSED), behind a
command that a game server applies (PENDING), or for a game server that is away (RUNNING; town get
names it). The server answers the agent with RUN_CANCELLED, and the handoff's key stays free.

If the game may have the command, the server refuses (RUN_IN_HAND). With --force it cancels the
run all the same, leaves the town as it was, and raises the alert APPLY_IN_DOUBT: look at the game,
and put the town's true state.

The beginning of an id will do if no other run has it; in a world of more than 10,000 runs cancel
takes whole ids alone.

Example:

    handoffctl run cancel 0d3c6a9e-4f0c-4a8e-9d5d-3d4c0f7dbb8a --reason "it would come too late"`
}

func (c *runCancelCommand) Run(ctx context.Context, a *app) error {
	runID, err := a.runID(ctx, c.RunID, true)
	if err != nil {
		return err
	}
	request := c.Signal.request(a)
	request.RunID, request.Force = runID, c.Force
	return a.signal(ctx, wire.RunCancel, request, func(*messages.Control) string {
		return "cancelled run " + show(runID)
	})
}

// runRetryCommand tries a run again.
type runRetryCommand struct {
	RunID  string      `arg:"" name:"run-id" help:"The run: one that failed with PLUGIN_UNAVAILABLE."`
	Signal signalFlags `embed:""`
}

func (runRetryCommand) Help() string {
	return `Has the handoff of a run judged again, in another run, if that one failed because no
plugin or console could be reached (PLUGIN_UNAVAILABLE): when the game is back, and the town is in
the state still that the handoff was made from. If it is accepted, its result is the key's from
then on. Without a result after some seconds the handoff waits, or its command is being applied;
handoffctl run get has what comes of it.

The server refuses a run whose command may have been applied (RUN_IN_DOUBT), one with a retry whose
command is being applied, or that was executed or failed (RUN_RETRIED), and every other run
(RUN_NOT_RETRYABLE). After a retry that was stale, rejected or cancelled the run may be retried
again.

The beginning of an id will do if no other run has it; in a world of more than 10,000 runs retry
takes whole ids alone.

Example:

    handoffctl run retry 0d3c6a9e-4f0c-4a8e-9d5d-3d4c0f7dbb8a --reason "the game server is back"`
}

func (c *runRetryCommand) Run(ctx context.Context, a *app) error {
	runID, err := a.runID(ctx, c.RunID, true)
	if err != nil {
		return err
	}
	server, err := a.connect()
	if err != nil {
		return err
	}
	got, err := server.Retry(ctx, client.Retry{
		RunID: runID, Reason: c.Signal.Reason, ActorID: c.Signal.actor(a),
	})
	if err != nil {
		return err
	}
	return a.print(got.JSON, func(t table) {
		if got.Result == nil {
			t.linef("run %s tries %s again; it has no result yet", show(got.RunID), show(runID))
		} else {
			t.ended(got.Result, got.RunID)
		}
	})
}

// signal gives a signal and prints its answer; say words it for people.
func (a *app) signal(
	ctx context.Context, verb wire.Verb, request messages.Signal, say func(*messages.Control) string,
) error {
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

func stillApplying(n int) string {
	if n == 1 {
		return "1 command is still being applied"
	}
	return fmt.Sprintf("%d commands are still being applied", n)
}
