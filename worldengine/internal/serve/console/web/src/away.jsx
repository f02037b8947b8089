import { href } from "./route.js";
import { useAway } from "./status.js";
import { Age, Said, Short, Time, zone } from "./text.jsx";

/** The wait for a plugin that is away, and the remedy. */
function Away({ of }) {
  return (
    <>
      <strong>The town's plugin has been away</strong> for <Age since={of.since} />.{" "}
      {of.attempt && (
        <>
          The command of <a href={href(["runs", of.runId])}>run <Short id={of.runId} /></a> waits: attempt {of.attempt}, the last answer is “<Said text={of.said} most={200} />”, the next request is at <Time at={of.nextAt} /> {zone}.{" "}
        </>
      )}
      <strong>To do:</strong> <Said text={of.todo} most={200} />
    </>
  );
}

/** Says of a town, or of a run, that it waits for a plugin. known is the absence as town.get or run.get has it. */
export function Awaited({ id, known }) {
  const away = useAway(id, known);
  return away ? <p class="notice wait"><Away of={away} /></p> : null;
}
