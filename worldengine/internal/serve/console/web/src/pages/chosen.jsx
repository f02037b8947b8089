import { useState } from "preact/hooks";
import { Dialog, Refused, forRuns } from "../actions.jsx";
import { ended, mayRetry } from "../rows.js";
import { actor, ask, can } from "../session.js";
import { count, counted } from "../text.jsx";
import { RetryButton } from "./retry.jsx";

const mayCancel = (row) => can("run.cancel") && !row.by && !ended(row);
const mayTryAgain = (row) => can("run.retry") && row.reason === mayRetry && row.result === "failed";

/** Reports whether something can be done with a run, together with others. */
export const mayChoose = (row) => mayCancel(row) || mayTryAgain(row);

/** What can be done with the runs that are chosen: it stays in view. onDone is called when it is done. */
export function Chosen({ rows, onClear, onDone }) {
  const [asked, setAsked] = useState(null);
  const [refused, setRefused] = useState([]);
  const cancelled = rows.filter(mayCancel).map((row) => row.runId);
  const again = rows.filter(mayTryAgain).map((row) => row.runId).reverse();
  if (rows.length === 0 && refused.length === 0) return null;
  const done = () => { onClear(); onDone(); };
  const cancel = async (reason) => {
    setRefused((await forRuns(asked, (runId) => ask("run.cancel", { runId, reason, actorId: actor() }))).refused);
    done();
  };
  return (
    <div class="bar actions" role="region" aria-label="Chosen runs">
      <strong>{counted(rows.length, "run")} chosen</strong>
      {cancelled.length > 0 && <button type="button" onClick={() => setAsked(cancelled)}>{`Cancel ${count(cancelled.length)}`}</button>}
      {again.length > 0 && <RetryButton runIds={again} label={`Try ${count(again.length)} again`} onDone={done} />}
      <button type="button" class="quiet" onClick={() => { setRefused([]); onClear(); }}>Clear</button>
      <Refused runs={refused} />
      {asked && (
        <Dialog title={`Cancel ${counted(asked.length, "run")}?`} danger action={`Cancel ${asked.length === 1 ? "it" : "them"}`} onClose={() => setAsked(null)} onDone={cancel}
          says="Their agents are answered RUN_CANCELLED, and the keys of the handoffs stay free. Where a game may have the command this is refused." />
      )}
    </div>
  );
}
