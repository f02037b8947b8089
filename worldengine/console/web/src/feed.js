/** How often listeners get what came, and how much is kept for them until then. */
const every = 200;
const most = 2000;

/**
 * The run events of the world as they come, in batches: a burst must not freeze the page. What does not fit a
 * batch is dropped and counted, and listeners ask for what they show.
 */
class Feed {
  #listeners = new Set();
  #alertListeners = new Set();
  #batch = [];
  #dropped = 0;
  #timer = null;

  take(msg) {
    try {
      const event = msg.json();
      event.town = msg.subject.split(".")[3];
      if (this.#batch.length < most) this.#batch.push(event);
      else this.#dropped++;
    } catch {
      this.#dropped++; // no event; who shows the run asks for its events
    }
    this.#timer ??= setTimeout(() => this.#flush(), every);
  }

  alert(msg) {
    let alert;
    try {
      alert = { id: msg.headers?.get("Nats-Msg-Id") ?? msg.string(), ...msg.json() };
    } catch {
      return; // no alert
    }
    for (const listener of this.#alertListeners) listener(alert);
  }

  #flush() {
    const [batch, dropped] = [this.#batch, this.#dropped];
    [this.#batch, this.#dropped, this.#timer] = [[], 0, null];
    for (const listener of this.#listeners) listener(batch, dropped);
  }

  /** Calls listener(events, dropped) until the function that it returns is called. */
  listen(listener) {
    this.#listeners.add(listener);
    return () => this.#listeners.delete(listener);
  }

  listenAlerts(listener) {
    this.#alertListeners.add(listener);
    return () => this.#alertListeners.delete(listener);
  }
}

export const feed = new Feed();
