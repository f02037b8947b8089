import { endsRun } from "./contract.gen.mjs";
import { ReplyError, UnavailableError } from "./errors.mjs";

/** @import { Client } from "./client.mjs" */
/** @import { Events, Followed } from "./events.mjs" */
/** @import { RunEvent } from "./types.mjs" */

/** @type {readonly string[]} */
const ends = endsRun;

/**
 * Reports whether an error may be over after a pause. That the connection is closed ends the events.
 * @param {unknown} error
 */
export function isAway(error) {
  if (error instanceof ReplyError) return error.status === 429 || error.status === 503;
  if (error instanceof UnavailableError) return ["TIMEOUT", "NO_RESPONDERS", "CONNECTION"].includes(error.code);
  return /(Connection|Request)Error$/.test(/** @type {any} */ (error)?.name); // of a flush
}

/**
 * Returns the event that a message is; it throws where it is none of the run in its subject.
 * @param {import("@nats-io/nats-core").Msg} msg
 * @returns {RunEvent}
 */
export function eventOf(msg) {
  /** @type {any} */
  let event;
  try {
    event = msg.json();
  } catch { /* it is none */ }
  if (event?.runId !== runOf(msg) || !(event.runSeq >= 1)) {
    throw new UnavailableError("INVALID_ANSWER", `on ${msg.subject} came what is no event of the run`);
  }
  return event;
}

/** Returns the id of the run that a message is of. @param {import("@nats-io/nats-core").Msg} msg */
export const runOf = (msg) => msg.subject.slice(msg.subject.lastIndexOf(".") + 1);

/** The events of one run that were yielded. */
export class OneRun {
  ended = false;
  /** Whether the connection was lost since it caught up. */
  lost = false;

  /** Of what is not behind afterMark nothing is yielded.
   * @param {Client} client @param {string} runId @param {Followed & { afterMark?: number }} what */
  constructor(client, runId, { afterSeq = 0, afterMark = 0, timeout, signal }) {
    this.client = client;
    this.runId = runId;
    this.last = afterSeq;
    this.after = afterMark;
    this.options = { timeout, signal };
  }

  /** @returns {Events} */
  async *begin() {}

  /** Yields the events that the server has behind the last one. @returns {Events} */
  async *fetch() {
    const from = { ...this.options, afterSeq: this.last, afterMark: this.after };
    for await (const { events, mark } of this.client.runEventPages(this.runId, from)) {
      for (const event of events) {
        if (this.last === 0 && this.after > 0) this.last = event.runSeq - 1;
        if (event.runSeq > this.last + 1) {
          throw new UnavailableError("INVALID_ANSWER", `run ${this.runId} has no event ${this.last + 1}`);
        }
        yield* this.next(event, mark ?? Infinity);
      }
    }
  }

  /** Yields what the server has and was not yielded. @returns {Events} */
  async *catchUp() {
    const before = this.last;
    yield* this.fetch();
    if (this.last > before || this.ended) return;
    const run = await this.client.run(this.runId, this.options);
    this.ended = ["COMPLETED", "FAILED", "CANCELLED"].includes(run.status) && run.lastEventSeq <= this.last;
  }

  /** Yields an event that came, behind those that are missing before it.
   * @param {import("@nats-io/nats-core").Msg} msg @returns {Events} */
  async *take(msg) {
    const event = eventOf(msg);
    if (event.runSeq > this.last + 1) yield* this.fetch();
    yield* this.next(event, Infinity);
  }

  /** @param {RunEvent} event @param {number} _mark the event is not behind it @returns {Events} */
  async *next(event, _mark) {
    if (event.runSeq <= this.last) return;
    this.last = event.runSeq;
    this.ended ||= ends.includes(event.eventType);
    yield event;
  }
}
