import { useEffect, useRef, useState } from "preact/hooks";
import { session } from "./session.js";
import { useStore } from "./store.js";

/** How many changes are kept, and asked for at first. */
const most = 100;
/** How long those that came are collected: many at once must not freeze the page. */
const batch = 200;
/** How long to wait before what failed is asked again. */
const pause = 3000;

/** The newest changes of all towns that the user may hear of and that no run has made, such as puts. */
class Changes {
  #list = []; // the newest first
  #me = null; // the user, with the rights, whom the list is of
  #listeners = new Set();
  #following = new AbortController();
  #came = [];
  #timer = null;

  /** The list of the user who is signed in: what another one was shown is not kept. */
  get list() {
    const { me } = session.get();
    if (me !== this.#me) this.#begin(me);
    return this.#list;
  }

  #begin(me) {
    this.#following.abort();
    this.#following = new AbortController();
    [this.#me, this.#list, this.#came] = [me, [], []];
    if (me) this.#follow(this.#following.signal);
  }

  /** Follows the notices of changes until the user signs out. The client asks for what came during a loss. */
  async #follow(signal) {
    const { client } = session.get();
    while (!signal.aborted && session.get().client === client) {
      try {
        const { revisions } = await client.request("town.history", { limit: most }, { signal });
        this.#take(revisions.filter((r) => !r.runId), signal);
        const onSeldom = (seldom) => session.set({ seldom });
        const after = revisions[0]?.revision ?? 0;
        for await (const change of client.changes({ after, signal, onSeldom })) this.#take([change], signal);
      } catch { /* such as an answer that cannot be read; the chip says whether the page is live */ }
      await new Promise((resolve) => { setTimeout(resolve, pause); });
    }
  }

  #take(changes, signal) {
    if (signal.aborted) return;
    const before = this.#list[0]?.revision, first = changes.at(-1)?.revision ?? Infinity;
    this.#list = [...changes, ...this.#list.filter((c) => c.revision < first)].slice(0, most);
    // An older log was restored: what pages show is of the one before.
    if (changes[0]?.revision < before) session.set({ epoch: session.get().epoch + 1 });
    this.#came = [...changes, ...this.#came].slice(0, 10 * most);
    this.#timer ??= setTimeout(() => {
      const came = this.#came;
      [this.#came, this.#timer] = [[], null];
      for (const listener of this.#listeners) listener(came);
    }, batch);
  }

  /** Calls listener(changes) with those that came, the newest first, until the function that it returns is called. */
  listen(listener) {
    this.#listeners.add(listener);
    return () => this.#listeners.delete(listener);
  }
}

const changes = new Changes();

/**
 * Returns the newest changes of towns that no run has made, the newest first. It calls onNew with those that come, and
 * once with those that were there: who has asked for a town goes by the revision.
 */
export function useChanges(onNew) {
  const { me } = useStore(session);
  const [list, setList] = useState([]);
  const latest = useRef(onNew);
  latest.current = onNew;
  useEffect(() => {
    setList(changes.list);
    return changes.listen((came) => { setList(changes.list); latest.current?.(came); });
  }, [me]);
  return list;
}
