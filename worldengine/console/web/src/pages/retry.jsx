import { useState } from "preact/hooks";
import { ask, can, session } from "../session.js";
import { Short, counted } from "../text.jsx";
import { Dialog } from "../ui.jsx";

/** The reason of runs that may be tried again: no game could be reached. */
export const mayRetry = "PLUGIN_UNAVAILABLE";

/** Tries one run again, or all runs of an outage, the oldest first. onDone gets the ids of the new runs. */
export function RetryButton({ runIds, label, onDone }) {
  const [open, setOpen] = useState(false);
  const [refused, setRefused] = useState([]);
  if (!can("run.retry") || runIds.length === 0) return null;
  const one = runIds.length === 1;
  const send = async (reason) => {
    const [made, errors] = [[], []];
    for (const runId of runIds) {
      try {
        made.push((await ask("run.retry", { runId, reason, actorId: session.get().me.user ?? "console" })).runId);
      } catch (error) {
        if (one) throw error;
        errors.push({ runId, error });
      }
    }
    setRefused(errors);
    onDone(made);
  };
  return (
    <>
      <button type="button" onClick={() => setOpen(true)}>{label}</button>
      {open && (
        <Dialog title={one ? "Try the run again?" : `Try ${counted(runIds.length, "run")} again?`} action="Try again" onClose={() => setOpen(false)} onDone={send}
          says={`Each handoff is judged again, in another run, on the state that its town has now${one ? "" : ", the oldest first; one that was tried again already is refused"}. If it is accepted, its result is the key's from then on.`} />
      )}
      {refused.length > 0 && (
        <div class="trouble" role="status">
          {counted(refused.length, "run was", "runs were")} refused:{" "}
          {refused.slice(0, 5).map(({ runId, error }) => <span key={runId}><Short id={runId} /> <code>{error.code ?? error.message}</code> </span>)}
        </div>
      )}
    </>
  );
}
