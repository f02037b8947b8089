package main

import (
	"context"

	"worldengine/worldengine/client"
)

// runRetryCommand has a run tried again.
type runRetryCommand struct {
	RunID  string      `arg:"" name:"run-id" help:"The run: one that failed with PLUGIN_UNAVAILABLE."`
	Signal signalFlags `embed:""`
}

// Help is the command's long help.
func (runRetryCommand) Help() string {
	return `Has the handoff of a run judged again, in another run, where that one failed because no
plugin or console could be reached (PLUGIN_UNAVAILABLE): when the game is back, and the town is in
the state still that the handoff was made from. If it is accepted, its result is the key's from
then on. Without a result after some seconds the handoff waits, or its command is being applied;
handoffctl run get has what comes of it.

The server refuses a run whose command may have been applied (RUN_IN_DOUBT), one with a retry whose
command is being applied, or that was executed or failed (RUN_RETRIED), and every other run
(RUN_NOT_RETRYABLE). After a retry that was stale, rejected or cancelled the run may be retried
again.

The beginning of an id will do where no other run has it; in a world of more than 10,000 runs retry
takes whole ids alone.

Example:

    handoffctl run retry 0d3c6a9e-4f0c-4a8e-9d5d-3d4c0f7dbb8a --reason "the game server is back"`
}

// Run has the run tried again.
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
	if a.json() {
		return a.printRaw(got.JSON)
	}
	if got.Result == nil {
		return a.printf("run %s tries %s again; it has no result yet\n", show(got.RunID),
			show(runID))
	}
	return a.printf("%s %s, run %s\n", show(string(got.Result.Status)),
		show(string(got.Result.ReasonCode)), show(got.RunID))
}
