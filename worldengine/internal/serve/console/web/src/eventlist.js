/** How many events are asked for at first, and how many more on demand. */
export const pageSize = 100;
/** How many are kept of a run that goes on. */
const mostEvents = 2000;

/** The events of one run: the last ones, then those that come, in their order and without a gap. */
export class EventList {
  events = [];
  error = null;
  loading = true;
  #busy = false;
  #again = false;

  /** ask(verb, body) asks the server. */
  constructor(runId, ask) {
    this.runId = runId;
    this.ask = ask;
  }

  get last() { return this.events.at(-1)?.runSeq ?? 0; }

  /** Adds what follows what is there; asks for what is missing between. */
  async add(events) {
    if (this.loading && events.length > 0) return this.catchUp();
    for (const event of events) {
      if (event.runSeq > this.last + 1) return this.catchUp();
      if (event.runSeq === this.last + 1) this.events.push(event);
    }
    this.#cut();
  }

  /** Asks for what follows what is there. What is called for meanwhile may be missing in the answer: then again. */
  async catchUp() {
    this.#again = true;
    if (this.#busy) return;
    this.#busy = true;
    try {
      while (this.#again) {
        this.#again = false;
        await this.#ask();
      }
      this.error = null;
    } catch (error) {
      this.error = error;
    }
    this.loading = this.#busy = false;
  }

  async #ask() {
    let afterSeq = this.last;
    if (afterSeq === 0) {
      const { lastEventSeq } = await this.ask("run.events", { runId: this.runId, limit: 1 });
      afterSeq = Math.max(0, lastEventSeq - pageSize);
    }
    for (;;) {
      const page = await this.ask("run.events", { runId: this.runId, afterSeq, limit: 1000 });
      this.events.push(...page.events.filter((e) => e.runSeq > this.last));
      this.#cut();
      if (page.events.length === 0 || this.last >= page.lastEventSeq) return;
      afterSeq = this.last;
    }
  }

  async older() {
    const first = this.events[0]?.runSeq ?? 1;
    const afterSeq = Math.max(0, first - 1 - pageSize);
    try {
      const page = await this.ask("run.events", { runId: this.runId, afterSeq, limit: first - 1 - afterSeq });
      if (this.events[0]?.runSeq === first) this.events = [...page.events.filter((e) => e.runSeq < first), ...this.events];
    } catch (error) {
      this.error = error;
    }
  }

  #cut() {
    if (this.events.length > mostEvents) this.events = this.events.slice(-mostEvents);
  }
}
