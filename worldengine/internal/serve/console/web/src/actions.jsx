import { useEffect, useRef, useState } from "preact/hooks";
import { Said, Short, counted } from "./text.jsx";
import { Trouble } from "./ui.jsx";

export function Command({ text }) {
  return <div class="command"><code>{text}</code><Copy text={text} label="Copy" /></div>;
}

/** Copies a text, or what a function returns. */
export function Copy({ text, label }) {
  const [done, setDone] = useState("");
  const copy = async () => {
    const whole = typeof text === "function" ? await text() : text;
    if (whole === undefined) return; // there is none, which text has said
    try {
      await navigator.clipboard.writeText(whole);
      setDone("Copied");
    } catch {
      setDone("Not copied: the browser refused"); // on http beyond localhost it has no clipboard
    }
    setTimeout(() => setDone(""), 2000);
  };
  return <button type="button" onClick={copy}>{done || label}</button>;
}

/** Hands a file to the browser's downloads: a text, or its parts. */
export function download(name, text, type = "application/json") {
  const url = URL.createObjectURL(new Blob([text].flat(), { type }));
  const a = Object.assign(document.createElement("a"), { href: url, download: name });
  a.click();
  setTimeout(() => URL.revokeObjectURL(url), 1000);
}

/** Returns the last error of an action, and a function that runs an action and keeps its error. */
export function useAttempt() {
  const [error, setError] = useState(null);
  const attempt = async (action) => {
    setError(null);
    try {
      return await action();
    } catch (why) {
      setError(why);
      return undefined;
    }
  };
  return [error, attempt];
}

/** Runs work(runId) for each run, one after another. It returns the answers, and the runs that were refused, with their errors. */
export async function forRuns(runIds, work) {
  const [answers, refused] = [[], []];
  for (const runId of runIds) {
    try {
      answers.push(await work(runId));
    } catch (error) {
      refused.push({ runId, error });
    }
  }
  return { answers, refused };
}

/** The runs of several for which something was refused, and why. */
export function Refused({ runs }) {
  if (runs.length === 0) return null;
  return (
    <div class="trouble" role="status">
      {counted(runs.length, "run was", "runs were")} refused:{" "}
      {runs.slice(0, 5).map(({ runId, error }) => <span key={runId}><Short id={runId} /> <code>{error.code ?? error.message}</code> </span>)}
    </div>
  );
}

/**
 * Asks for a reason before something is changed, or with typed to type that text. stop is why it cannot be changed
 * any more.
 */
export function Dialog({ title, says, action, danger, stop, typed, onClose, onDone }) {
  const ref = useRef(null);
  const [reason, setReason] = useState("");
  const [error, setError] = useState(null);
  const [busy, setBusy] = useState(false);
  useEffect(() => {
    const before = document.activeElement;
    ref.current.showModal();
    return () => { if (before?.isConnected) before.focus({ preventScroll: true }); };
  }, []);
  const submit = async (e) => {
    e.preventDefault();
    setBusy(true);
    try {
      await onDone(reason);
      onClose();
    } catch (why) {
      setError(why);
      setBusy(false);
    }
  };
  return (
    <dialog ref={ref} onClose={onClose} aria-labelledby="dialog-title">
      <form onSubmit={submit}>
        <h2 id="dialog-title">{title}</h2>
        <p>{says}</p>
        <label>
          <span>{typed ? <>Type <strong><Said text={typed} /></strong></> : "Reason"}</span>
          <input required maxLength={typed?.length ?? 200} value={reason} onInput={(e) => setReason(e.target.value)} />
        </label>
        <Trouble error={error} />
        {stop && <p class="trouble" role="alert">{stop}</p>}
        <div class="actions">
          <button type="button" onClick={onClose}>Leave it</button>
          <button type="submit" class={danger ? "danger" : "primary"} disabled={busy || Boolean(stop) || Boolean(typed && reason !== typed)}>{action}</button>
        </div>
      </form>
    </dialog>
  );
}
