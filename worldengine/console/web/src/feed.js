const [commitListeners, alertListeners] = [new Set(), new Set()];

const listen = (listeners) => (listener) => {
  listeners.add(listener);
  return () => listeners.delete(listener);
};

/** The commits of the world, in batches, and its alerts as they come. */
export const feed = {
  /** Calls listener(commits, lost) until the function that it returns is called. `lost` says that some may be missing. */
  listen: listen(commitListeners),
  listenAlerts: listen(alertListeners),

  take(commits, lost) {
    if (commits.length > 0 || lost) for (const listener of commitListeners) listener(commits, lost);
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
