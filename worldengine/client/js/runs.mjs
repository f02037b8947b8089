import { ReplyError, RunError, UnavailableError } from "./errors.mjs";
import { eventOf, isAway, OneRun, runOf } from "./onerun.mjs";

/** @import { Client } from "./client.mjs" */
/** @import { Events, Followed, defaultPace } from "./events.mjs" */
/** @import { RunEvent } from "./types.mjs" */
/** @import { Msg } from "@nats-io/nats-core" */

/**
 * A run of many. `gone` says that its events cannot be had, and that the caller was told. `began` is the
 * persistedAt of its first event, if that was yielded, and its last event is not behind `mark`.
 */
class Known extends OneRun {
  gone = false;
  began = 0;
  mark = Infinity;

  /** @param {RunEvent} event @param {number} mark @returns {Events} */
  async *next(event, mark) {
    if (event.runSeq <= this.last) return;
    this.mark = mark;
    if (event.runSeq === 1) this.began = Date.parse(event.persistedAt);
    yield* super.next(event, mark);
  }
}

/**
 * The runs of a town, or of all towns. A mark is a sequence of the world's log: lists and the events of a run
 * are told behind a mark, and an event that comes by the subscription has its own in the header Log-Seq.
 */
export class Runs {
  ended = false;
  /** Whether the connection was lost since it caught up: what comes then does not move the mark. */
  lost = false;
  /** @type {Map<string, Known>} */
  known = new Map();
  /** Up to where there is nothing left to yield, but for the runs that are still to be listed. */
  mark = 0;
  /** Where the mark moves to once an event came that was persisted `late` later, and nothing was lost.
   * @type {{ mark: number, at: number } | undefined} */
  newest;
  unswept = 0; // the events since ended runs were forgotten

  /** @param {Client} client @param {Followed} what @param {typeof defaultPace} pace */
  constructor(client, what, pace) {
    this.client = client;
    this.what = what;
    this.pace = pace;
    this.options = { timeout: what.timeout, signal: what.signal };
    /** The begin of the runs that are followed from their first event, and whether all of them are known.
     * While they are listed, since moves on. */
    this.since = Date.parse(what.from ?? "1970-01-01");
    this.listed = what.from === undefined;
    if (Number.isNaN(this.since)) throw new RangeError(`from is no time: ${what.from}`);
  }

  /** Gets the mark behind which following begins: what comes from now on is behind it. @returns {Events} */
  async *begin() {
    for await (const { mark } of this.pages({ limit: 1 })) {
      this.mark = mark;
      break;
    }
  }

  /** @param {{ from?: string, afterMark?: number, order?: "oldest", limit?: number }} list */
  pages(list) {
    return this.client.runPages({ ...this.options, townId: this.what.townId, limit: this.pace.page, ...list });
  }

  /** Yields what came of the known runs, and of others. It may break off anywhere and be done again.
   * @returns {Events} */
  async *catchUp() {
    this.lost = true; // until it is done
    for (const run of [...this.known.values()]) {
      if (!run.ended && !run.gone) yield* this.missing(run, false);
    }
    if (!this.listed) {
      yield* this.catchUpList({ from: new Date(this.since).toISOString(), order: "oldest" });
      this.listed = true;
    }
    this.mark = yield* this.catchUpList({ afterMark: this.mark });
    this.newest = undefined;
    this.lost = false;
  }

  /** Yields what was not yielded of the runs of a list, and returns the mark up to which that is complete.
   * @param {{ from?: string, afterMark?: number, order?: "oldest" }} list
   * @returns {AsyncGenerator<RunEvent, number>} */
  async *catchUpList(list) {
    /** @type {number | undefined} */
    let mark;
    for await (const page of this.pages(list)) {
      mark ??= page.mark;
      for (const { runId, lastEventSeq } of page.runs) {
        const run = this.known.get(runId) ?? this.add(runId, list.afterMark);
        if (!run.gone && run.last < lastEventSeq) yield* this.missing(run, false);
        if (!this.listed) this.since = Math.max(this.since, run.began);
        this.sweep();
      }
    }
    return mark ?? this.mark;
  }

  /** @param {Msg} msg @returns {Events} */
  async *take(msg) {
    /** @type {RunEvent} */
    let event;
    try {
      event = eventOf(msg);
    } catch (error) {
      this.lose(this.known.get(runOf(msg)) ?? this.add(runOf(msg)), error);
      return;
    }
    const mark = Number(msg.headers?.get("Log-Seq")) || Infinity;
    let run = this.known.get(event.runId);
    if (!run) {
      // It was yielded, or is not to be, and is published again, such as by a repair.
      if (mark <= this.mark) return;
      run = this.add(event.runId, this.mark);
    }
    if (run.gone) return;
    if (event.runSeq > run.last + 1) {
      yield* this.missing(run, run.last > 0);
      if (run.gone) return;
      if (run.last === 0) { // its earlier events are not kept
        run.last = event.runSeq - 1;
        run.ended = false;
      }
    }
    yield* this.of(run.next(event, mark));
    if (!this.lost) this.reached({ mark, at: Date.parse(event.persistedAt) });
  }

  /**
   * Yields what was not yielded of a run. Of one whose events are no longer kept there is no more, unless it
   * is certain that there is a gap.
   * @param {Known} run @param {boolean} gap @returns {Events}
   */
  async *missing(run, gap) {
    try {
      yield* this.of(run.fetch());
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

  /** Makes a run known of which no events are yielded up to a mark.
   * @param {string} runId @param {number} [afterMark] */
  add(runId, afterMark = 0) {
    const run = new Known(this.client, runId, { ...this.options, afterMark });
    this.known.set(runId, run);
    return run;
  }

  /** Yields events, and counts them. @param {Events} events @returns {Events} */
  async *of(events) {
    for await (const event of events) {
      this.unswept++;
      yield event;
    }
  }

  /** Moves the mark on when an event came while nothing was lost: what was persisted so much earlier than that
   * event came too. @param {{ mark: number, at: number }} place */
  reached(place) {
    if (place.mark !== Infinity) {
      if (this.newest && place.at < this.newest.at + this.pace.late) return;
      this.mark = Math.max(this.mark, this.newest?.mark ?? 0);
      this.newest = place;
    }
    this.sweep();
  }

  /** Forgets the runs that ended before the mark: they are in no list again. */
  sweep() {
    if (this.unswept < this.pace.sweep) return;
    this.unswept = 0;
    for (const [runId, { ended, gone, mark, began }] of this.known) {
      if (ended && !gone && mark <= this.mark && (this.listed || began < this.since)) this.known.delete(runId);
    }
  }
}

/** Reports whether an error is one of the run that was asked for. @param {unknown} error */
const isOfRun = (error) => error instanceof ReplyError ||
  (error instanceof UnavailableError && error.code === "INVALID_ANSWER");
