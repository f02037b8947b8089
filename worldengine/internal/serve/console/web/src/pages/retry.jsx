import { useState } from "preact/hooks";
import { Dialog, Refused, forRuns, useAttempt } from "../actions.jsx";
import { mayRetry } from "../rows.js";
import { actor, ask, can, session } from "../session.js";
import { counted } from "../text.jsx";
import { Trouble } from "../ui.jsx";

/** How many runs are tried again at once. */
const most = 5000;

/** Returns the ids of the runs that pass a filter and may be tried again, the oldest first: of too many the newest. */
async function retryable(filter) {
  const found = [];
  for await (const { runId, resultStatus, reasonCode } of session.get().client.runs({ ...filter, limit: 200 })) {
    if (resultStatus === "failed" && reasonCode === mayRetry && found.push(runId) === most) break;
  }
  return found.reverse();
}

/**
 * Tries one run again, or all runs of an outage, the oldest first: runIds, or those that pass a filter. onDone gets the
 * ids of the new runs.
 */
export function RetryButton({ runIds, filter, label, onDone }) {
  const [asked, setAsked] = useState(null); // the runs that the dialog is about
  const [finding, setFinding] = useState(false);
  const [trouble, attempt] = useAttempt();
  const [refused, setRefused] = useState([]);
  if (!can("run.retry") || (runIds.length === 0 && !filter)) return null;
  const one = asked?.length === 1;
  const open = async () => {
    setFinding(true);
    await attempt(async () => setAsked(filter ? await retryable(filter) : runIds));
    setFinding(false);
  };
  const send = async (reason) => {
    const retried = await forRuns(asked, (runId) => ask("run.retry", { runId, reason, actorId: actor() }));
    if (one && retried.refused.length > 0) throw retried.refused[0].error;
    setRefused(retried.refused);
    onDone(retried.answers.map((run) => run.runId));
  };
  return (
    <>
      <button type="button" disabled={finding} onClick={open}>{finding ? "Looking for them…" : label}</button>
      <Trouble error={trouble} />
      {asked && (
        <Dialog title={one ? "Try the run again?" : `Try ${counted(asked.length, "run")} again?`} action="Try again" onClose={() => setAsked(null)} onDone={send}
          stop={asked.length === 0 && "No run is left to be tried again."}
          says={`Each handoff is judged again, in another run, on the state that its town has now${one ? "" : ", the oldest first; one that was tried again already is refused"}. If it is accepted, its result is the key's from then on.${asked.length === most ? " There may be older ones: try again after these." : ""}`} />
      )}
      <Refused runs={refused} />
    </>
  );
}
