package pending

import (
	"context"
	"time"

	"worldengine/worldengine/apply"
	"worldengine/worldengine/backoff"
)

// A handoff fails with PLUGIN_UNAVAILABLE only where no request of any server can have arrived: an
// operator may have it tried again then (docs/adr/0026-a-retry-is-another-run.md). What the other
// servers know stands in the record: the Askers are those that have not said so of themselves.

// known returns the result of an attempt that reached no plugin, as it is known of the requests of
// all servers: a.Pending is as the log has it.
func (w *Worker) known(a *application, v apply.Result) apply.Result {
	switch {
	case v.Applied || v.Failed.Reason != apply.ReasonPluginUnavailable,
		a.Pending.Via == apply.RCON: // which one server asks, and each attempt once
	case a.gate.MayHaveArrived(): // a request of an attempt that another server has ended
		v.Failed, v.Reached = apply.Silence(true, nil), true
	case a.Pending.MayHaveArrived() || a.Pending.OthersAsk(w.config.Server):
		v.Failed = apply.Silence(true, nil)
	}
	return v
}

// awaitAskers waits until no other server may have asked for the command of a, where its last
// attempt has reached no plugin: each server takes itself off the askers at that point. It waits in
// no turn of the town, and not for long: a server may have died.
func (w *Worker) awaitAskers(ctx context.Context, a *application, v apply.Result) {
	if v.Applied || v.Failed.Reason != apply.ReasonPluginUnavailable ||
		a.Pending.Via == apply.RCON || a.NextStep(v, &w.config.Policy).Again {
		return
	}
	for until := time.Now().Add(w.cancelWait()); ctx.Err() == nil; {
		current, err := w.load(ctx, a.town, a.runID)
		p := current.Pending
		if err == nil && (p == nil || p.Attempt != v.Attempt || p.MayHaveArrived() ||
			!p.OthersAsk(w.config.Server)) || !time.Now().Before(until) {
			return
		}
		w.resign(ctx, a)
		_ = backoff.Sleep(ctx, pollPause)
	}
}
