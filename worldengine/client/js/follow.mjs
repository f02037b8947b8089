// Following the log of a world: pages of its commits from a cursor, and the events and changes in them.
import { endsRun } from "./contract.gen.mjs";
import { ReplyError, UnavailableError } from "./errors.mjs";

/** @import { Client } from "./client.mjs" */
/** @import { Commit, Loss, RunEvent } from "./types.mjs" */

/**
 * The commits to follow: those behind the cursor `after`, or from now on; of one town, or of all towns that the user
 * may read. `limit` bounds a page, `timeout` is how long a request may take beyond its wait, in milliseconds.
 * @typedef {object} Followed
 * @property {string} [after]
 * @property {string} [townId]
 * @property {number} [limit]
 * @property {number} [timeout]
 * @property {AbortSignal} [signal]
 */

/**
 * A page of commits. `lost` says why commits before it may be missing. `cursor` goes on behind it.
 * @typedef {{ commits: Commit[], cursor: string, lost?: "GAP" | "INVALID_CURSOR" }} Page
 */

/**
 * The times of following in milliseconds, which tests set otherwise: how long the server waits for a commit, and how
 * long the client waits at least before it asks a server again that was away.
 */
export const defaultPace = { wait: 10_000, away: 1000 };

/** @type {readonly string[]} */
const ends = endsRun;

/**
 * Follows the log page by page, also through losses of the connection and restarts of the server. A page is empty if
 * no commit came in time, and at first when it follows from now on. It ends by its signal and when the client is
 * closed.
 *
 * If the log no longer has a cursor that the server gave, it lost its end, or an older one was restored: then
 * it goes on from the end. The INVALID_CURSOR of the caller's own cursor is thrown.
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
      if (page.gap) lost = "GAP";
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
 * Follows run events: those of commits, from the time `from` on if it is given, or those of one run to its end.
 * @param {Client} client
 * @param {Followed & { onLost?: (loss: Loss) => void, from?: string, runId?: string, afterSeq?: number }} what
 * @param {typeof defaultPace} [pace]
 * @returns {AsyncGenerator<RunEvent, void>}
 */
export async function* events(client, { from, runId, afterSeq, ...what }, pace = defaultPace) {
  if (runId !== undefined) return yield* eventsOfRun(client, { ...what, runId, afterSeq }, pace);
  const time = Date.parse(from ?? "1970-01-01");
  if (Number.isNaN(time)) throw new RangeError(`from is no time: ${from}`);
  const after = from === undefined ? what.after : await cursorBefore(client, time, what, pace);
  for await (const commit of commits(client, { ...what, after }, pace)) {
    if (commit.events && !(Date.parse(commit.at) < time)) yield* commit.events;
  }
}

/**
 * Returns a cursor before the first commit at a time or later, by bisection: the times of the log do not fall. It
 * returns "0" if following is over.
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
    while (!commit?.at && at < high) { // a page may pass over commits, or have a damaged one
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
 * Follows the events of one run behind afterSeq, to its end.
 * @param {Client} client
 * @param {Followed & { runId: string, afterSeq?: number }} what
 * @param {typeof defaultPace} pace
 * @returns {AsyncGenerator<RunEvent, void>}
 */
async function* eventsOfRun(client, { runId, afterSeq = 0, townId, timeout, signal }, pace) {
  if (!/^[\w-]{1,128}$/.test(runId)) throw new RangeError(`no run has the id ${JSON.stringify(runId)}`);
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
  /** Yields the events that the server has and that were not yielded. @returns {AsyncGenerator<RunEvent, void>} */
  async function* missing() {
    for (let page; last < (page?.lastEventSeq ?? Infinity);) {
      page = await ask("run.events", { runId, afterSeq: last });
      if (!page?.events.length) return;
      yield* next(page.events);
    }
  }
  // The cursor first, so that no commit falls between it and the events that are there.
  const end = await ask("event.list", {}), run = end && await ask("run.get", { runId });
  if (!run) return;
  yield* missing();
  ended ||= ["COMPLETED", "FAILED", "CANCELLED"].includes(run.status) && last >= run.lastEventSeq;
  if (ended) return;
  const { appendedBy, started } = run.metadata ?? {}; // another producer's run may claim any town
  const town = townId ?? (appendedBy ? undefined : started?.townId);
  const what = { after: end.cursor, townId: town, timeout, signal };
  for await (const { commits: came, lost } of pages(client, what, pace)) {
    const some = came.flatMap((commit) => commit.events ?? []).filter((event) => event.runId === runId);
    if (lost || some.some((event, i) => event.runSeq > (some[i - 1]?.runSeq ?? last) + 1)) yield* missing();
    yield* next(some);
    if (ended) return;
  }
}

/**
 * Asks a verb until it is answered, however long the server is away. It returns undefined when the signal or the
 * caller's close has ended it.
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

/** Reports whether an error may be over after a pause. @param {unknown} error */
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
