import { ReplyError, RunError, UnavailableError } from "./errors.mjs";
import { eventOf, isAway, OneRun, runOf } from "./onerun.mjs";

/** @import { Client } from "./client.mjs" */
/** @import { Events, Followed, defaultPace } from "./events.mjs" */
/** @import { RunEvent } from "./types.mjs" */
/** @import { Msg } from "@nats-io/nats-core" */

const hour = 3_600_000;
const openStatuses = ["PENDING", "APPROVED", "RUNNING", "PAUSED"];

/** A run of many. `gone` says that its events cannot be had, and that the caller was told. */
class Known extends OneRun {
  gone = false;
  began = 0; // the persistedAt of its first and last event
  latest = 0;
}

/** The runs of a town, or of all towns. */
export class Runs {
  ended = false;
  /** Whether the connection was lost since it caught up: what comes then does not move the mark. */
  lost = false;
  /** @type {Map<string, Known>} */
  known = new Map();
  /** A time up to which every run that began is known, but for those that began `clocks` before: when the
   * newest event was persisted that came while nothing was lost, or that of the list behind a loss with
   * which a run began. It is the servers' clock. */
  mark = 0;
  unswept = 0; // the events since ended runs were forgotten

  /** @param {Client} client @param {Followed} what @param {typeof defaultPace} pace */
  constructor(client, what, pace) {
    this.client = client;
    this.what = what;
    this.pace = pace;
    this.options = { timeout: what.timeout, signal: what.signal };
    this.now = Date.now();
    /** The begin of the runs that are followed from their first event. */
    this.floor = what.from === undefined ? this.now - pace.clocks : Date.parse(what.from);
    if (Number.isNaN(this.floor)) throw new RangeError(`from is no time: ${what.from}`);
  }

  /**
   * Notes how far the runs are that began before those that are followed from their first event. Where the
   * time is that of this process, a run that began shortly before may seem to have begun since by the clock
   * of a server.
   * @returns {Events}
   */
  async *begin() {
    if (this.what.from === undefined) await this.note(this.floor, this.now);
    const since = this.floor - (this.what.openSince ?? hour);
    for (const status of openStatuses) await this.note(since, this.floor, status);
  }

  /** Makes the runs of a list known as far as they are.
   * @param {number} from @param {number} to @param {string} [status] */
  async note(from, to, status) {
    for await (const run of this.list({ from: time(from), to: time(to), status })) {
      if (this.known.has(run.runId)) continue;
      const known = this.add(run.runId, run.lastEventSeq);
      known.ended = !openStatuses.includes(run.status);
      known.latest = to;
    }
  }

  /** @param {{ from?: string, to?: string, status?: string, order?: "newest" | "oldest" }} list */
  list(list) {
    return this.client.runs({ ...this.options, townId: this.what.townId, limit: this.pace.page, ...list });
  }

  /** Yields what came of the known runs, and the runs that began meanwhile. @returns {Events} */
  async *catchUp() {
    this.lost = true; // until it is done
    for (const run of [...this.known.values()]) {
      if (!run.ended && !run.gone) yield* this.missing(run, false);
    }
    const since = Math.max(this.floor, this.mark - this.pace.clocks);
    for await (const { runId, lastEventSeq } of this.list({ from: time(since), order: "oldest" })) {
      const run = this.known.get(runId) ?? this.add(runId, 0);
      if (!run.gone && run.last < lastEventSeq) yield* this.missing(run, false);
      this.reached(run.began);
    }
    this.lost = false;
  }

  /** @param {Msg} msg @returns {Events} */
  async *take(msg) {
    /** @type {RunEvent} */
    let event;
    try {
      event = eventOf(msg);
    } catch (error) {
      this.lose(this.known.get(runOf(msg)) ?? this.add(runOf(msg), 0), error);
      return;
    }
    const run = this.known.get(event.runId) ?? await this.meet(event);
    if (!run || run.gone) return;
    if (event.runSeq > run.last + 1) yield* this.missing(run, true);
    if (run.gone) return;
    yield* this.of(run, run.next(event));
    if (this.lost) return;
    const at = Date.parse(event.persistedAt);
    if (this.what.from === undefined && at < this.floor) this.floor = at; // the clock of this process is ahead
    this.reached(at);
  }

  /**
   * Yields what was not yielded of a run. Of one whose events are no longer kept there is no more, unless it
   * is certain that there is a gap.
   * @param {Known} run @param {boolean} gap @returns {Events}
   */
  async *missing(run, gap) {
    try {
      yield* this.of(run, run.fetch());
    } catch (error) {
      if (!gap && error instanceof ReplyError && error.code === "UNKNOWN_RUN") run.ended = true;
      else this.lose(run, error);
    }
  }

  /** Tells the caller that the events of a run cannot be had, and throws any other error.
   * @param {Known} run @param {unknown} error */
  lose(run, error) {
    if (isAway(error) || !isOfRun(error)) throw error;
    run.gone = true;
    const told = new RunError(run.runId, run.last, error);
    if (!this.what.onRunError) throw told;
    this.what.onRunError(told);
  }

  /**
   * Returns a run that is not known, or null where it is an old event that is published again, such as by
   * a repair.
   * @param {RunEvent} event
   */
  async meet(event) {
    if (Date.parse(event.persistedAt) < this.old()) return null;
    if (event.runSeq === 1) return this.add(event.runId, 0);
    try {
      for await (const first of this.client.runEvents(event.runId, { ...this.options, limit: 1 })) {
        const began = Date.parse(first.persistedAt);
        if (began >= this.floor && began >= this.old()) return this.add(event.runId, 0);
        break;
      }
    } catch (error) {
      if (isAway(error) || !isOfRun(error)) throw error;
      if (!(error instanceof ReplyError && error.code === "UNKNOWN_RUN")) { // else its first events are not kept
        this.lose(this.add(event.runId, event.runSeq - 1), error);
        return null;
      }
    }
    return this.add(event.runId, event.runSeq - 1);
  }

  /** @param {string} runId @param {number} afterSeq */
  add(runId, afterSeq) {
    const run = new Known(this.client, runId, { ...this.options, afterSeq });
    this.known.set(runId, run);
    return run;
  }

  /** Yields events of a run. @param {Known} run @param {Events} events @returns {Events} */
  async *of(run, events) {
    for await (const event of events) {
      run.latest = Date.parse(event.persistedAt);
      if (event.runSeq === 1) run.began = run.latest;
      this.unswept++;
      yield event;
    }
  }

  /** Moves the mark on, and forgets what ended so long ago that no list has it again. @param {number} at */
  reached(at) {
    this.mark = Math.max(this.mark, at);
    if (this.unswept < this.pace.sweep) return;
    this.unswept = 0;
    for (const [runId, { ended, gone, latest }] of this.known) {
      if (ended && !gone && latest < this.old()) this.known.delete(runId);
    }
  }

  /** The time before which runs that ended may have been forgotten. */
  old() { return this.mark - 2 * this.pace.clocks; }
}

/** @param {number} ms */
const time = (ms) => new Date(Math.max(0, ms)).toISOString();

/** Reports whether an error is one of the run that was asked for. @param {unknown} error */
const isOfRun = (error) => error instanceof ReplyError ||
  (error instanceof UnavailableError && error.code === "INVALID_ANSWER");
