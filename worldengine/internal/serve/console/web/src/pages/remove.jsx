import { useState } from "preact/hooks";
import { Dialog } from "../actions.jsx";
import { href } from "../route.js";
import { ask, can } from "../session.js";

/** Removes a town whose name is typed. A user without the right is not offered it. */
export function RemoveButton({ townId }) {
  const [open, setOpen] = useState(false);
  if (!can("town.remove")) return null;
  const done = async () => {
    await ask("town.remove", { townId });
    location.hash = href(["towns"]);
  };
  return (
    <>
      <button type="button" onClick={() => setOpen(true)}>Remove</button>
      {open && (
        <Dialog title="Remove the town?" action="Remove the town" danger typed={townId} onDone={done} onClose={() => setOpen(false)}
          says="It is unknown from then on, and handoffs for it are rejected. Its history and its runs stay as long as the log keeps them." />
      )}
    </>
  );
}
