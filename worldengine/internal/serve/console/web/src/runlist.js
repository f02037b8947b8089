import { ended, passes, rowAfter, rowOf } from "./rows.js";

/** How many runs a list asks for at once. */
export const pageSize = 50;
/** How many rows a list keeps; older ones are left out, and it says so. */
export const mostRows = 200;
/** How many events are kept until the first answer has come. */
const mostEarly = 2000;
/** How often a list is asked for again because more came than it keeps. */
const tries = 3;

/**
 * The runs that pass a filter, the newest first: what run.list says, merged with the events that come by the
 * sequence of each run. New runs wait, counted, until release. What it keeps is bounded.
 */
export class RunList {
  rows = [];
  held = new Map(); // new runs that are not shown yet, the oldest first
  left = 0; // new runs that were too many to be kept: release asks for the list again
  lost = false; // new runs may be missing, and release asks for the list again
  early = []; // events that came before the first answer
  missed = false;
  next = 0;
  from = ""; // when the oldest run of the last answer began
  cut = 0;
  searched = 0; // among how many runs those of the list were found, back to searchedTo
  searchedTo = undefined;
  loading = true;
  loaded = false;
  error = null;

  /** ask(verb, body) asks the server, for as many runs as are shown. */
  constructor(filter, ask, limit = pageSize) {
    this.filter = filter;
    this.ask = ask;
    this.limit = Math.min(limit, pageSize);
  }

  /** The rows that are shown: a run whose status is still to come is kept, and shown when it passes. */
  get shown() { return this.filter.status || this.filter.reasonCode ? this.rows.filter((row) => passes(row, this.filter)) : this.rows; }

  /** How many runs wait to be shown. */
  get newer() { return [...this.held.values()].filter((row) => passes(row, this.filter)).length + this.left; }

  /** Asks for the newest runs. With keep, rows that these do not reach stay, and more are said to be newer. */
  async load(keep = false) {
    this.loading = true;
    try {
      for (let i = 0; i < tries; i++) {
        this.missed = false;
        this.#merge(await this.ask("run.list", { ...this.filter, limit: this.limit }), keep);
        if (!this.missed) break;
      }
      this.error = null;
    } catch (error) {
      this.error = error;
    }
    this.loading = false;
  }

  /** Takes the newest runs in. Where they do not reach those that are there, these are left, unless they are kept. */
  #merge(page, keep) {
    const known = new Map(this.rows.map((row) => [row.runId, row]));
    const rows = page.runs.map(rowOf).map((row) => {
      const old = known.get(row.runId) ?? this.held.get(row.runId);
      return old && old.seq >= row.seq ? old : row;
    });
    const listed = new Set(rows.map((row) => row.runId));
    const first = rows.findIndex((row) => known.has(row.runId));
    const oldest = rows.map((row) => row.startedAt).filter(Boolean).sort()[0] ?? "";
    if (this.loaded && first < 0 && keep && this.rows.length > 0) {
      this.lost = true;
    } else if (!this.loaded || first < 0) {
      // The page has no gap: what waits and is not in it began before its oldest run, or after it was made.
      for (const [runId, row] of this.held) {
        if (listed.has(runId) || (row.beganAt ?? row.startedAt ?? oldest) < oldest) this.held.delete(runId);
      }
      this.rows = rows;
      this.from = oldest;
      this.next = page.next ?? 0;
      this.left = this.cut = 0;
      this.lost = false;
      this.#found(page);
    } else {
      const last = this.rows.findLastIndex((row) => listed.has(row.runId));
      const newer = this.rows.slice(0, last).filter((row) => !listed.has(row.runId));
      this.rows = [...newer, ...rows.slice(first), ...this.rows.slice(last + 1)];
      const later = [...this.held.values()].filter((row) => !listed.has(row.runId));
      this.held.clear();
      for (const row of [...rows.slice(0, first).reverse(), ...later]) this.#hold(row);
    }
    this.loaded = true;
    const early = this.early;
    this.early = [];
    for (const event of early) this.take(event);
  }

  /** Takes an event in: into the row of its run, or, of a run that begins, as a new row. */
  take(event) {
    if (!this.loaded) {
      if (this.early.length < mostEarly) this.early.push(event);
      else this.missed = true;
      return;
    }
    const held = this.held.get(event.runId);
    if (held) {
      this.held.set(event.runId, rowAfter(held, event));
      return;
    }
    const at = this.rows.findIndex((r) => r.runId === event.runId);
    if (at >= 0) this.rows[at] = rowAfter(this.rows[at], event);
    else if (event.runSeq === 1 && !this.#isOlder(event)) {
      this.#hold(rowAfter({ runId: event.runId, seq: 0, townId: event.townId, beganAt: event.persistedAt }, event));
    }
  }

  /** Reports whether a run began before the oldest of the last answer: events may come later than an answer that has newer runs. */
  #isOlder({ persistedAt }) {
    return !this.filter.status && !this.filter.reasonCode && persistedAt < this.from;
  }

  #hold(row) {
    const by = { ...this.filter, status: undefined, reasonCode: undefined }; // they are still to come
    const live = !this.filter.id && !this.filter.after; // else it is a list of certain runs, or of older ones
    if (!live || !passes(row, by)) return;
    this.held.set(row.runId, row);
    if (this.held.size <= mostRows) return;
    const [[runId, oldest]] = this.held;
    this.held.delete(runId);
    if (passes(oldest, this.filter)) this.left++;
  }

  #found({ searched = 0, searchedTo }, before = 0) {
    this.searched = before + searched;
    this.searchedTo = searchedTo;
  }

  /** Shows what waits. It returns whether the list has to be asked for again, because too much waited. */
  release() {
    if (this.left > 0 || this.lost) {
      this.held.clear();
      this.loaded = false;
      return true;
    }
    for (const row of this.held.values()) this.rows.unshift(row);
    this.held.clear();
    if (this.filter.status || this.filter.reasonCode) this.rows = this.rows.filter((row) => passes(row, this.filter) || !ended(row));
    if (this.rows.length > mostRows) {
      this.cut += this.rows.length - mostRows;
      this.rows.length = mostRows;
      this.next = 0;
    }
    return false;
  }

  async loadOlder() {
    if (!this.next || this.loading) return;
    this.loading = true;
    try {
      const page = await this.ask("run.list", { ...this.filter, limit: pageSize, after: this.next });
      const known = new Set(this.rows.map((row) => row.runId));
      this.rows.push(...page.runs.map(rowOf).filter((row) => !known.has(row.runId)));
      this.next = page.next ?? 0;
      this.#found(page, this.searched);
    } catch (error) {
      this.error = error;
    }
    this.loading = false;
  }
}
