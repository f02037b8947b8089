import { useEffect } from "preact/hooks";
import { ask, session } from "./session.js";
import { createStore, useStore } from "./store.js";

/** The answer to world.status, which all pages share. */
const status = createStore({ data: null, error: null });

/** How often it is asked for while the page is looked at: by time, since no message says that counters have changed. */
const often = 3000;
const seldom = 15_000; // while no page shows counters

let asking = false;
let again = false; // another one has asked meanwhile
let asked = 0; // when it was asked last
let counters = 0; // how many pages show them
let of = null; // the client of the last question
let epoch = 0;

/** Asks for the status, and once more if another one asks meanwhile. */
export async function reload() {
  again = asking;
  const { client, phase } = session.get();
  if (asking || phase !== "ready" || !client) return;
  asking = true;
  asked = Date.now();
  if (of !== client) status.set({ data: null, error: null });
  of = client;
  try {
    const data = await ask("world.status", {});
    if (session.get().client === client) status.set({ data, error: null });
  } catch (error) {
    if (session.get().client === client) status.set({ error });
  }
  asking = false;
  if (again) reload();
}

session.subscribe((now) => {
  if (now.phase !== "ready" || now.client === of && now.epoch === epoch) return;
  epoch = now.epoch;
  reload();
});
setInterval(() => {
  if (!document.hidden && Date.now() - asked >= (counters > 0 ? often : seldom) - 100) reload();
}, often);

/** The status: {data, error, reload}. A page that shows counters has it asked for often. */
export function useStatus(shown = false) {
  useEffect(() => {
    if (!shown) return undefined;
    counters++;
    reload();
    return () => { counters--; };
  }, [shown]);
  return { ...useStore(status), reload };
}

/** The plugin that is away: of a town, or of the run whose command waits for it. known is from another answer. */
export function useAway(id, known) {
  const { data } = useStore(status);
  const all = data?.pluginsAbsent;
  const complete = all && all.length === data.townStates.noPlugin;
  return all?.find(({ townId, runId }) => townId === id || runId === id) ?? (complete ? undefined : known);
}
