import { useEffect, useRef, useState } from "preact/hooks";
import { ask, session } from "./session.js";
import { useStore } from "./store.js";

/** How often it is asked what is newer than the newest revision that is known: no run event tells of puts. */
const every = 3000;
/** How many changes are kept, and asked for at once. */
const most = 100;

/** The newest changes of all towns that the user may read, while a page listens. */
class Changes {
  #list = []; // those that no run has made, such as puts, the newest first
  #me = null; // the user, with the rights, whom the list is of
  #listeners = new Set();
  #after = undefined; // the newest revision that is known
  #epoch = 0; // the connection over which it was asked first
  #timer = null;
  #busy = false;

  /** The list of the user who is signed in: what another one was shown is not kept. */
  get list() {
    const { me } = session.get();
    if (me !== this.#me) {
      this.#me = me;
      this.#list = [];
      this.#after = undefined;
      this.#epoch = 0;
      this.#busy = false;
    }
    return this.#list;
  }

  async look() {
    const { link, epoch, me } = session.get();
    const known = this.list;
    const begun = this.#epoch === epoch;
    if (!me || this.#busy || link !== "live" || (begun && document.hidden)) return;
    this.#busy = true;
    let revisions = null;
    try {
      ({ revisions } = await ask("town.history", { after: begun ? this.#after : undefined, limit: most }, { timeout: every }));
    } catch { /* the next time; the chip says whether the page is live */ }
    if (session.get().me !== me) return; // another user has signed in meanwhile
    this.#busy = false;
    if (!Array.isArray(revisions)) return;
    const mine = revisions.filter((r) => !r.runId);
    this.#list = begun ? [...mine, ...known].slice(0, most) : mine;
    this.#after = revisions[0]?.revision ?? (begun ? this.#after : undefined);
    this.#epoch = epoch;
    if (!begun || revisions.length > 0) for (const listener of this.#listeners) listener(begun ? revisions : []);
  }

  /** Calls listener(changes) with all that come, until the function that it returns is called. */
  listen(listener) {
    if (this.#listeners.size === 0) this.#timer = setInterval(() => this.look(), every);
    this.#listeners.add(listener);
    this.look();
    return () => {
      this.#listeners.delete(listener);
      if (this.#listeners.size === 0) {
        clearInterval(this.#timer);
        this.#epoch = 0; // what comes meanwhile no page hears of
      }
    };
  }
}

const changes = new Changes();

/**
 * Returns the newest changes of towns that no run has made, the newest first. It calls onNew with all changes that
 * come, also those of runs.
 */
export function useChanges(onNew) {
  const { epoch, me } = useStore(session);
  const [list, setList] = useState([]);
  const latest = useRef(onNew);
  latest.current = onNew;
  useEffect(() => {
    setList(changes.list);
    return changes.listen((came) => { setList(changes.list); latest.current?.(came); });
  }, [epoch, me]);
  return list;
}
