import { ReplyError, UnavailableError } from "./errors.mjs";
import { isAway, OneRun } from "./onerun.mjs";
import { Runs } from "./runs.mjs";
import { eventSubject } from "./subjects.mjs";

/** @import { Client } from "./client.mjs" */
/** @import { RunError } from "./errors.mjs" */
/** @import { RunEvent } from "./types.mjs" */

/**
 * What to follow: one run behind afterSeq, or the runs of a town (of all towns without townId) that
 * began at the time `from` or later.
 * @typedef {object} Followed
 * @property {string} [runId]
 * @property {number} [afterSeq]
 * @property {string} [townId]
 * @property {string} [from]
 * @property {number} [openSince] has no effect any more
 * @property {(error: RunError) => void} [onRunError]
 * @property {number} [timeout]
 * @property {AbortSignal} [signal]
 */

/** @typedef {AsyncGenerator<RunEvent, void>} Events */

/**
 * The bounds of following, which tests set otherwise. `waiting` is how many messages may wait for a slow
 * reader; then they are dropped and asked for again. `late` is how much later an event was persisted than all
 * those that have certainly come when it comes (the servers of a cluster deliver in an order that is not quite
 * that of the log), and `away` how long to wait at least before what failed, because the server was away, is
 * asked again, in milliseconds. `page` is how many runs are asked for at
 * once, and `sweep` after how many events the runs that ended are forgotten.
 */
export const defaultPace = { waiting: 10_000, late: 60_000, away: 1000, page: 200, sweep: 1000 };

/**
 * Follows run events: it subscribes first and then asks for what was before, so nothing is missed
 * between the two; `runSeq` tells what came already, and where something is missing, which is
 * asked for. After a reconnection it asks for what came meanwhile.
 * @param {Client} client
 * @param {Followed} what
 * @param {typeof defaultPace} [pace]
 * @returns {Events}
 */
export async function* follow(client, what, pace = defaultPace) {
  /** @typedef {{ msg: import("@nats-io/nats-core").Msg } | { lost: true } | { behind: true } | { error: unknown }} Item */
  /** @type {Item[]} */
  let queue = [];
  let wake = () => {};
  let over = false;
  /** @param {Item} item */
  const push = (item) => {
    if (queue.length >= pace.waiting) queue = [...queue.filter((each) => "error" in each), { behind: true }];
    queue.push(item);
    wake();
  };
  /** @type {() => void} */
  let end = () => {};
  /** @type {Promise<void>} */
  const ended = new Promise((resolve) => { end = resolve; });
  const stop = () => { over = true; end(); wake(); };
  if (what.runId !== undefined && !/^[\w-]{1,128}$/.test(what.runId)) {
    throw new RangeError(`no run has the id ${JSON.stringify(what.runId)}`);
  }
  if (client.nc.isClosed()) throw new UnavailableError("CONNECTION", "the connection is closed");
  const runs = what.runId === undefined ? new Runs(client, what, pace) : new OneRun(client, what.runId, what);
  const sub = client.nc.subscribe(await eventSubject(client.world, what.townId, what.runId), {
    callback: (error, msg) => {
      if (error) push({ error: new UnavailableError("PERMISSION_DENIED", error.message, error) });
      else push({ msg });
    },
  });
  const offLost = client.onDisconnect(() => push({ lost: true }));
  const off = client.onReconnect(() => push({ behind: true }));
  what.signal?.addEventListener("abort", stop);
  /** @type {UnavailableError | undefined} */
  let broken;
  const offClosed = client.onClosed((error) => {
    if (error) broken = new UnavailableError("CONNECTION", `the connection was closed: ${error.message}`, error);
    stop();
  });
  /** @param {() => Events} step */
  const patiently = (step) => again(step, pace.away, () => over, (ms) => new Promise((resolve) => {
    const timer = setTimeout(resolve, ms, null);
    wake = () => { if (over) { clearTimeout(timer); resolve(null); } };
  }));
  try {
    if (what.signal?.aborted) return;
    yield* patiently(async function* () { await Promise.race([client.nc.flush(), ended]); });
    yield* patiently(() => runs.begin());
    yield* patiently(() => runs.catchUp());
    while (!over && !runs.ended) {
      const item = queue.shift();
      if (!item) await new Promise((resolve) => { wake = () => resolve(null); });
      else if ("error" in item) throw item.error;
      else if ("lost" in item) runs.lost = true;
      else if ("behind" in item) yield* patiently(() => runs.catchUp());
      else yield* patiently(() => runs.take(item.msg));
    }
    if (broken && !runs.ended) throw broken;
  } finally {
    off();
    offLost();
    offClosed();
    what.signal?.removeEventListener("abort", stop);
    if (!client.nc.isClosed()) sub.unsubscribe();
  }
}

/**
 * Does a step again while the server is away; what it has yielded is not yielded again.
 * @param {() => Events} step
 * @param {number} pause
 * @param {() => boolean} over
 * @param {(ms: number) => Promise<unknown>} sleep
 * @returns {Events}
 */
async function* again(step, pause, over, sleep) {
  while (!over()) {
    try {
      return yield* step();
    } catch (error) {
      if (over()) return;
      if (!isAway(error)) throw error;
      await sleep(Math.max(pause, error instanceof ReplyError ? error.retryAfterMs : 0));
    }
  }
}
