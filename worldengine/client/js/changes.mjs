import { ReplyError, UnavailableError } from "./errors.mjs";
import { isAway } from "./onerun.mjs";
import { changesSubject } from "./subjects.mjs";

/** @import { Msg, Subscription } from "@nats-io/nats-core" */
/** @import { Client } from "./client.mjs" */
/** @import { Change } from "./types.mjs" */

/**
 * The bounds of following, which tests set otherwise: how many notices may wait for a slow reader, how many
 * revisions are asked for at once, and, in milliseconds, how long to wait at least before what failed is asked again
 * and how often a server is asked: `seldom` one that publishes no notices, `makeUp` one that does. Each server
 * publishes a notice once: one that it did not come to publish is lost, and servers may be exchanged behind an
 * external NATS, without a loss that the client notices.
 */
export const changesPace = { waiting: 10_000, page: 200, away: 1000, seldom: 30_000, makeUp: 300_000 };

/** Returns the change of a notice, or null where it is none. @param {Msg} msg @returns {Change | null} */
function read(msg) {
  try {
    return msg.json();
  } catch {
    return null;
  }
}

/**
 * Follows the changes that no run has made. Every server of the world publishes a notice, so the revision tells
 * what came already.
 * @param {Client} client
 * @param {{ townId?: string, after?: number, timeout?: number, signal?: AbortSignal,
 *   onSeldom?: (seldom: boolean) => void }} what
 * @param {typeof changesPace} [pace]
 * @returns {AsyncGenerator<Change, void>}
 */
export async function* followChanges(client, { townId, after, timeout, signal, onSeldom }, pace = changesPace) {
  /** @type {(Msg | "lost" | "behind")[]} */
  let queue = [];
  /** @type {Subscription[]} */
  let subs = [];
  /** @type {string[] | undefined} */
  let mine;
  let newest = after, over = false, lost = false, hearing = false, due = 0, wake = () => {};
  /** @type {UnavailableError | undefined} */
  let broken;
  /** @param {Msg | "lost" | "behind"} item */
  const push = (item) => {
    if (queue.length >= pace.waiting) queue = ["lost", "behind"];
    queue.push(item);
    wake();
  };
  /** @param {number} ms */
  const pause = (ms) => new Promise((resolve) => {
    const timer = setTimeout(resolve, ms);
    wake = () => { clearTimeout(timer); resolve(null); };
  });
  const unsubscribe = () => {
    if (!client.nc.isClosed()) for (const sub of subs) sub.unsubscribe();
    subs = [];
  };
  /** Says when to ask by time. */
  const askLater = () => { due = performance.now() + (subs.length ? pace.makeUp : pace.seldom); };

  /** Does work until the server is there. @template T @param {() => Promise<T>} work @returns {Promise<T | undefined>} */
  async function patiently(work) {
    while (!over) {
      try {
        return await work();
      } catch (error) {
        if (over) break;
        if (!isAway(error)) throw error;
        // By no clock that may be set back.
        const until = performance.now() + Math.max(pace.away, error instanceof ReplyError ? error.retryAfterMs : 0);
        for (let left; !over && (left = until - performance.now()) > 0;) await pause(left);
      }
    }
    return undefined;
  }
  /** @param {string} verb @param {object} body */
  const ask = (verb, body) => patiently(() => client.request(verb, body, { timeout, signal }));

  /** Goes on without notices: there are none, or the user may not hear them, or not any more. */
  function deny() {
    unsubscribe();
    onSeldom?.(true);
    askLater();
    wake();
  }

  /** Asks what the user may hear, and subscribes to it. */
  async function hear() {
    const me = await ask("whoami", {});
    if (!me) return;
    mine = me.read ?? me.towns;
    unsubscribe();
    hearing = true;
    let denied = !me.changes;
    const towns = townId === undefined ? mine ?? [undefined] : [townId];
    for (const town of denied ? [] : towns) {
      subs.push(client.nc.subscribe(await changesSubject(client.world, town), {
        callback: (error, msg) => {
          if (!error) push(msg);
          else if (hearing) denied = true;
          else deny();
        },
      }));
    }
    await patiently(() => Promise.race([client.nc.flush(), ended])); // a refusal comes before its answer
    hearing = false;
    if (denied) deny();
    else onSeldom?.(false);
  }

  /** @param {object} body @returns {Promise<{ revisions: (Change & { runId?: string })[], next?: number }>} */
  async function page(body) {
    try {
      return await ask("town.history", { townId, ...body }) ?? { revisions: [] };
    } catch (error) {
      if (error instanceof ReplyError && error.code === "UNKNOWN_TOWN") return { revisions: [] };
      throw error;
    }
  }

  /** Yields what the server has and was not yielded. @returns {AsyncGenerator<Change, void>} */
  async function* catchUp() {
    const last = (await page({ limit: 1 })).revisions[0]?.revision ?? 0;
    newest = Math.min(newest ?? last, last); // last is lower where the log has lost its end
    /** @type {Change[]} */
    const found = [];
    for (let before; ;) {
      const { revisions, next } = await page({ after: newest || undefined, before, limit: pace.page });
      for (const r of revisions) {
        const town = r.townId ?? townId;
        if (!r.runId && (mine?.includes(town) ?? true)) found.push({ ...r, townId: town });
      }
      if (next === undefined) break;
      before = next;
    }
    for (const change of found.reverse()) yield* take(change);
  }

  /** @param {Change} change @returns {Generator<Change, void>} */
  function* take(change) {
    if (!(change.revision > (newest ?? 0))) return;
    newest = change.revision;
    yield change;
  }

  if (client.nc.isClosed()) throw new UnavailableError("CONNECTION", "the connection is closed");
  /** @type {() => void} */
  let end = () => {};
  /** @type {Promise<void>} */
  const ended = new Promise((resolve) => { end = resolve; });
  const stop = () => { over = true; end(); wake(); };
  const off = [client.onDisconnect(() => push("lost")), client.onReconnect(() => push("behind")),
    client.onClosed((error) => {
      if (error) broken = new UnavailableError("CONNECTION", `the connection was closed: ${error.message}`, error);
      stop();
    })];
  signal?.addEventListener("abort", stop);
  try {
    if (signal?.aborted) return;
    push("behind");
    while (!over) {
      const item = queue.shift();
      if (item === undefined) {
        const left = due - performance.now();
        if (left > 0) await pause(left);
        else queue.push("behind"); // as after a reconnection
      } else if (item === "lost") {
        lost = true;
      } else if (item === "behind") {
        await hear();
        lost = false;
        yield* catchUp();
        askLater();
      } else if (!lost) { // what comes behind a loss is asked for, with what is missing before it
        const change = read(item);
        if (change) yield* take(change);
        else push("behind");
      }
    }
    if (broken) throw broken;
  } finally {
    for (const each of off) each();
    signal?.removeEventListener("abort", stop);
    unsubscribe();
  }
}
