import { useState } from "preact/hooks";
import { Dialog } from "../actions.jsx";
import { actor, ask, can } from "../session.js";
import { reload as reloadStatus } from "../status.js";

/** Pauses and resumes a town, or the world. A user without the right is not offered it. control is a load of control.get. */
export function PauseButton({ control, townId }) {
  const [open, setOpen] = useState(false);
  if (!control.data) return null;
  const paused = control.data.status === "PAUSED" && (!townId || control.data.pausedBy);
  const verb = paused ? "control.resume" : "control.pause";
  if (!can(verb)) return null;
  const what = townId ? "the town" : "the world";
  const says = paused
    ? `The handoffs that wait for ${what} are judged at once, in their order.`
    : `New handoffs for ${what} wait until it is resumed; commands that a game is applying end as they would.`;
  const done = async (reason) => {
    await ask(verb, { ...(townId && { townId }), reason, actorId: actor() });
    control.reload();
    reloadStatus();
  };
  const label = `${paused ? "Resume" : "Pause"} ${what}`;
  return (
    <>
      <button type="button" onClick={() => setOpen(true)}>{label}</button>
      {open && <Dialog title={`${label}?`} says={says} action={label} danger={!paused} onDone={done} onClose={() => setOpen(false)} />}
    </>
  );
}
