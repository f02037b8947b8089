const [commitListeners, alertListeners] = [new Map(), new Set()]; // the former with the town of each

/** How long the listeners must be the same, as a page follows another, before the feed follows them. */
const settling = 50;
let [scope, abort, waiting, timer] = [null, new AbortController(), [], undefined];

/** Has the feed follow one town if all listeners are about it, every town if they are not, and nothing without any. */
function settle() {
  const towns = [...new Set(commitListeners.values())];
  const next = towns.length === 0 ? null : { townId: towns.length === 1 ? towns[0] : undefined };
  if (next?.townId === scope?.townId && !next === !scope) return;
  scope = next;
  abort.abort();
  abort = new AbortController();
  if (scope) for (const wake of waiting.splice(0)) wake();
}

function changed() {
  clearTimeout(timer);
  timer = setTimeout(settle, settling);
}

/** The commits that the pages listen to, in batches, and the alerts of the world as they come. */
export const feed = {
  /**
   * Calls listener(commits, lost) with the commits of a town, or of all without one, until the function that it returns
   * is called. `lost` says that some may be missing: then a page asks for what it shows.
   */
  listen(listener, townId) {
    commitListeners.set(listener, townId);
    changed();
    return () => { commitListeners.delete(listener); changed(); };
  },

  listenAlerts(listener) {
    alertListeners.add(listener);
    return () => alertListeners.delete(listener);
  },

  /** Returns the town to follow, undefined for all, and the signal that it is another one. It waits for a listener. */
  async wanted() {
    while (!scope) await new Promise((wake) => { waiting.push(wake); });
    return { townId: scope.townId, signal: abort.signal };
  },

  take(commits, lost) {
    if (commits.length > 0 || lost) for (const listener of [...commitListeners.keys()]) listener(commits, lost);
  },

  /** Takes a live commit of no town, such as a pause of the world: of a page that listens to a town it is news. */
  world(msg) {
    if (scope?.townId !== undefined) feed.take([msg.json()], false);
  },

  alert(msg) {
    let alert;
    try {
      alert = { id: msg.headers?.get("Nats-Msg-Id") ?? msg.string(), ...msg.json() };
    } catch {
      return; // no alert
    }
    for (const listener of alertListeners) listener(alert);
  },
};

/** Returns the run events of commits, each with its town. */
export const eventsOf = (commits) =>
  commits.flatMap(({ townId, events = [] }) => events.map((event) => ({ ...event, townId })));

/** Reports whether a commit changed a town and no run event says so, such as a put. */
export const isChange = ({ hash, events }) => Boolean(hash) && events?.length === 0;
