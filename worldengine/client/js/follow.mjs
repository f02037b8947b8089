// Following the log of a world: pages of its commits from a cursor, and the events and changes in them.
import { endsRun } from "./contract.gen.mjs";
import { ReplyError, UnavailableError } from "./errors.mjs";

/** @import { Client } from "./client.mjs" */
/** @import { Commit, Loss, RunEvent } from "./types.mjs" */

/**
 * The commits to follow: after the cursor `after`, or the next ones; of one town, or of all towns that the user may
 * read. `limit` bounds a page, `timeout` the time of a request beyond its wait, in milliseconds.
 * @typedef {object} Followed
 * @property {string} [after]
 * @property {string} [townId]
 * @property {number} [limit]
 * @property {number} [timeout]
 * @property {AbortSignal} [signal]
 */

/**
 * A page of commits. `lost` is the reason if commits before it may be missing. `cursor` continues after it.
 * @typedef {{ commits: Commit[], cursor: string, lost?: "GAP" | "INVALID_CURSOR" }} Page
 */

/**
 * The times of following in milliseconds, which tests change: how long the server waits for a commit, and the least
 * pause before the client asks an unavailable server again.
 */
export const defaultPace = { wait: 10_000, away: 1000 };

/** @type {readonly string[]} */
const ends = endsRun;

/**
 * Follows the log page by page, even if the connection is lost or the server restarts. A page is empty if no commit
 * came in time; without `after` the first page is empty. It ends by its signal and when the client is closed.
 *
 * If the log does not have a cursor that the server gave, it has lost its end or was replaced by an older one. Then
 * following continues at its end. An INVALID_CURSOR about the caller's cursor is thrown.
 * @param {Client} client
 * @param {Followed} what
 * @param {typeof defaultPace} [pace]
 * @returns {AsyncGenerator<Page, void>}
 */
export async function* pages(client, { after, townId, limit, ...options }, pace = defaultPace) {
  if (client.nc.isClosed()) throw new UnavailableError("CONNECTION", "the connection is closed");
  /** @type {Page["lost"]} */
  let lost;
  for (let cursor = after, isOwn = after !== undefined; ;) {
    const body = { after: cursor, townId, limit, waitMs: pace.wait };
    try {
      const page = await patiently(client, "event.list", body, options, pace);
      if (!page) return;
      if (page.gap && cursor !== "0") lost = "GAP";
      yield { commits: page.commits, cursor: page.cursor, lost };
      [cursor, isOwn, lost] = [page.cursor, false, undefined];
    } catch (error) {
      if (isOwn || !(error instanceof ReplyError) || error.code !== "INVALID_CURSOR") throw error;
      [cursor, lost] = [undefined, "INVALID_CURSOR"];
    }
  }
}

/**
 * Follows the commits of the log, in its order. `onLost` is called if some may be missing, and for a damaged one.
 * @param {Client} client
 * @param {Followed & { onLost?: (loss: Loss) => void }} what
 * @param {typeof defaultPace} [pace]
 * @returns {AsyncGenerator<Commit, void>}
 */
export async function* commits(client, { onLost, ...what }, pace) {
  for await (const page of pages(client, what, pace)) {
    if (page.lost) onLost?.({ reason: page.lost, cursor: page.cursor });
    for (const commit of page.commits) {
      if (commit.damaged) onLost?.({ reason: "DAMAGED", cursor: commit.cursor });
      yield commit;
    }
  }
}

/**
 * Follows the run events of commits, from the time `from` on if it is given, or of one run to its end.
 * @param {Client} client
 * @param {Followed & { onLost?: (loss: Loss) => void, from?: string | Date, runId?: string, afterSeq?: number }} what
 * @param {typeof defaultPace} [pace]
 * @returns {AsyncGenerator<RunEvent, void>}
 */
export async function* events(client, { from, runId, afterSeq, ...what }, pace = defaultPace) {
  if (runId !== undefined) return yield* eventsOfRun(client, { ...what, runId, afterSeq }, pace);
  const time = from === undefined ? 0 : timeOf(from);
  const after = from === undefined ? what.after : await cursorBefore(client, time, what, pace);
  for await (const commit of commits(client, { ...what, after }, pace)) {
    if (commit.events && !(Date.parse(commit.at) < time)) yield* commit.events;
  }
}

/**
 * Returns the milliseconds of `from`. Date.parse alone would take a cursor or a runSeq for a year.
 * @param {string | Date} from
 */
function timeOf(from) {
  const time = from instanceof Date ? from.getTime() : /^\d{4}-\d\d-\d\d/.test(from) ? Date.parse(from) : NaN;
  if (!Number.isNaN(time)) return time;
  throw new RangeError(`from is a time, such as "2026-02-16T10:00:00Z", not ${JSON.stringify(from)}: ` +
    "a cursor goes into after, and a runSeq into afterSeq");
}

/**
 * Returns a cursor before the first commit at a time or later, by bisection, since the times of the log do not
 * decrease. It returns "0" if following has ended.
 * @param {Client} client @param {number} time @param {Followed} what @param {typeof defaultPace} pace
 */
async function cursorBefore(client, time, { townId, timeout, signal }, pace) {
  const ask = (/** @type {object} */ body) => patiently(client, "event.list", body, { timeout, signal }, pace);
  let low = 0, high = Number((await ask({}))?.cursor ?? 0);
  while (low < high) {
    const middle = Math.floor((low + high) / 2);
    /** @type {Commit | undefined} */
    let commit;
    let at = middle;
    while (!commit?.at && at < high) { // a page may be empty, or have a damaged commit
      const page = await ask({ after: String(at), townId, limit: 1 });
      if (!page) return "0";
      [commit] = page.commits;
      at = Number(page.cursor);
    }
    if (commit?.at && at <= high && Date.parse(commit.at) < time) low = at;
    else high = middle;
  }
  return String(low);
}

/**
 * Follows the events of one run after afterSeq, to its end.
 * @param {Client} client
 * @param {Followed & { runId: string, afterSeq?: number }} what
 * @param {typeof defaultPace} pace
 * @returns {AsyncGenerator<RunEvent, void>}
 */
async function* eventsOfRun(client, { runId, afterSeq = 0, townId, timeout, signal }, pace) {
  if (!/^[^|]{1,256}$/u.test(runId)) throw new RangeError(`no run has the id ${JSON.stringify(runId)}`);
  const ask = (/** @type {string} */ verb, /** @type {object} */ body) =>
    patiently(client, verb, body, { timeout, signal }, pace);
  let last = afterSeq, ended = false;
  /** @param {RunEvent[]} some @returns {Generator<RunEvent, void>} */
  function* next(some) {
    for (const event of some) {
      if (event.runSeq <= last) continue;
      last = event.runSeq;
      ended ||= ends.includes(event.eventType);
      yield event;
    }
  }
  /** Yields the server's events that were not yielded before. @returns {AsyncGenerator<RunEvent, void>} */
  async function* missing() {
    for (let page; last < (page?.lastEventSeq ?? Infinity);) {
      page = await ask("run.events", { runId, afterSeq: last });
      if (!page?.events.length) return;
      yield* next(page.events);
    }
  }
  // The cursor comes first, so that no commit falls between it and the present events.
  const end = await ask("event.list", {}), run = end && await ask("run.get", { runId });
  if (!run) return;
  yield* missing();
  ended ||= ["COMPLETED", "FAILED", "CANCELLED"].includes(run.status) && last >= run.lastEventSeq;
  if (ended) return;
  const { appendedBy, started } = run.metadata ?? {}; // the start of another producer's run may name any town
  const town = townId ?? (appendedBy ? undefined : started?.townId);
  const what = { after: end.cursor, townId: town, timeout, signal };
  for await (const { commits: came, lost } of pages(client, what, pace)) {
    const some = came.flatMap((commit) => commit.events ?? []).filter((event) => event.runId === runId);
    const skips = some.some((event, i) => event.runSeq > (some[i - 1]?.runSeq ?? last) + 1);
    if (lost || skips || came.some((commit) => commit.damaged)) yield* missing();
    yield* next(some);
    if (ended) return;
  }
}

/**
 * Asks a verb until the server answers. It returns undefined if the signal or the caller's close has ended it.
 * @param {Client} client
 * @param {string} verb
 * @param {object} body
 * @param {{ timeout?: number, signal?: AbortSignal }} options
 * @param {typeof defaultPace} pace
 * @returns {Promise<any>}
 */
async function patiently(client, verb, body, options, pace) {
  for (;;) {
    try {
      return await client.request(verb, body, options);
    } catch (error) {
      if (options.signal?.aborted) return undefined;
      if (client.nc.isClosed()) {
        const broken = await client.nc.closed();
        if (!broken) return undefined;
        throw new UnavailableError("CONNECTION", `the connection was closed: ${broken.message}`, broken);
      }
      if (!isAway(error)) throw error;
      const asked = error instanceof ReplyError ? error.retryAfterMs : 0;
      await pause(client, Math.max(pace.away, asked), options.signal);
    }
  }
}

/** Reports whether a repetition may help after an error. @param {unknown} error */
export function isAway(error) {
  if (error instanceof ReplyError) return error.status === 429 || error.status === 503;
  return error instanceof UnavailableError && ["TIMEOUT", "NO_RESPONDERS", "CONNECTION"].includes(error.code);
}

/**
 * Waits, at most until the signal or the end of the connection.
 * @param {Client} client @param {number} ms @param {AbortSignal} [signal] @returns {Promise<void>}
 */
export function pause(client, ms, signal) {
  return new Promise((resolve) => {
    const done = () => {
      clearTimeout(timer);
      off();
      signal?.removeEventListener("abort", done);
      resolve();
    };
    const timer = setTimeout(done, ms);
    const off = client.onClosed(() => setTimeout(done));
    signal?.addEventListener("abort", done);
  });
}
