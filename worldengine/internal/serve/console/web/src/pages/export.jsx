import { useRef, useState } from "preact/hooks";
import { download, useAttempt } from "../actions.jsx";
import { session } from "../session.js";
import { count } from "../text.jsx";
import { Trouble } from "../ui.jsx";

/** How many runs a file has at most. */
const most = 50_000;

/** Saves the runs that pass a filter as JSON lines, the newest first. Pressed again, it stops and saves what it has. */
export function ExportButton({ filter, name }) {
  const [got, setGot] = useState(null); // how many are there, while it goes on
  const [trouble, attempt] = useAttempt();
  const stop = useRef(false);
  const save = async () => {
    if (got !== null) {
      stop.current = true;
      return;
    }
    stop.current = false;
    setGot(0);
    await attempt(async () => {
      const lines = [];
      for await (const run of session.get().client.runs({ ...filter, limit: 200 })) {
        if (lines.push(`${JSON.stringify(run)}\n`) % 1000 === 0) setGot(lines.length);
        if (stop.current || lines.length === most) break;
      }
      download(`${name}.jsonl`, lines, "application/jsonl");
    });
    setGot(null);
  };
  return (
    <>
      <button type="button" onClick={save} title={`Saves the runs that pass the filters as JSON lines, the newest ${count(most)} at most`}>{got === null ? "Export" : `Stop at ${count(got)}`}</button>
      <Trouble error={trouble} />
    </>
  );
}
