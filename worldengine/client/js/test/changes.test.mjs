import assert from "node:assert/strict";
import { test } from "node:test";
import { changesPace, followChanges } from "../changes.mjs";
import { makeHandoff } from "../index.mjs";
import { changesSubject } from "../subjects.mjs";
import { access, fake, joined, link, password, serve } from "./world.mjs";

/** @import { Client } from "../index.mjs" */
/** @import { Change } from "../types.mjs" */

const pace = { ...changesPace, page: 2, away: 5, seldom: 10 };
const fast = { reconnectTimeWait: 5, reconnectJitter: 0 };

/** Gives a town another day, or creates it. @param {Client} engine @param {string} townId @param {number} day */
async function put(engine, townId, day) {
  const { snapshot } = await engine.town("town-threatened");
  const now = await engine.town(townId).catch(() => null);
  return engine.putTown({ ...snapshot, townId, day }, { expectedSnapshotHash: now?.snapshotHash });
}

/** Reads changes. @param {AsyncGenerator<import("../types.mjs").Change, void>} changes */
function reading(changes) {
  /** @param {import("../types.mjs").Town} at */
  return async ({ townId, revision, snapshotHash }) => {
    const { value, done } = await changes.next();
    assert.ok(!done && value, "no more changes come");
    assert.deepEqual([value.townId, value.revision, value.hash, value.cause], [townId, revision, snapshotHash, "put"]);
  };
}

test("changes that no run has made come once each, also through a loss", { timeout: 120_000 }, async (t) => {
  const world = await serve(t);
  const writer = await joined(t, world.url), wire = await link(t, world.url);
  const engine = await joined(t, wire.url, fast);
  const first = await put(writer, "a", 1), second = await put(writer, "b", 1);
  const all = engine.changes({ after: first.revision });
  const of = followChanges(engine, { townId: "b", after: first.revision }, pace);
  const [isNext, isNextOf] = [reading(all), reading(of)];
  await isNext(second);
  await isNextOf(second);
  for (const day of [2, 3, 4]) await isNext(await put(writer, "a", day));
  const town = await writer.town("a");
  await writer.send(await makeHandoff(town, { type: "TOWNSFOLK_TALK", actorId: "m", args: { talkType: "casual" }, reason: "r" }));
  wire.set(true);
  const missed = [];
  for (const day of [2, 3, 4, 5, 6]) missed.push(await put(writer, "b", day)); // more than a page of the history has
  wire.set(false);
  for (const each of missed) {
    await isNext(each);
    await isNextOf(each);
  }
  await isNext(await put(writer, "new", 1));
  const last = all.next();
  await engine.nc.close();
  assert.deepEqual(await last, { value: undefined, done: true });
});

test("a user who is bound to towns hears of those alone", { timeout: 120_000 }, async (t) => {
  const { file, admit } = access(t);
  admit({ name: "olga", role: "operator" }, { name: "mayor", role: "agent", towns: ["mine"] });
  const world = await serve(t, "--access", file);
  const as = (/** @type {string} */ user) => joined(t, world.url, { user, pass: password });
  const operator = await as("olga");
  const { revision } = await put(operator, "other", 1);
  await put(operator, "other", 2);
  const mine = await put(operator, "mine", 1);
  /** @type {boolean[]} */
  const seldom = [];
  const isNext = reading((await as("mayor")).changes({ after: revision, onSeldom: (is) => seldom.push(is) }));
  await isNext(mine);
  await put(operator, "other", 3);
  await isNext(await put(operator, "mine", 2));
  assert.deepEqual(seldom, [false]);
});

test("a server that publishes no notices is asked from time to time", { timeout: 60_000 }, async (t) => {
  const world = await serve(t);
  const engine = await joined(t, world.url, { world: "old" });
  fake(engine, "whoami", () => ({ body: { world: "old", verbs: [] } }));
  fake(engine, "town.history", (n) => ({ body: { revisions: [n > 4
    ? { townId: "put", revision: 4, cause: "put" } : { townId: "ran", revision: 3, runId: "run" }] } }));
  await engine.nc.flush();
  /** @type {boolean[]} */
  const seldom = [];
  const changes = followChanges(engine, { onSeldom: (is) => seldom.push(is) }, pace);
  assert.equal((await changes.next()).value?.townId, "put");
  assert.ok(seldom.every(Boolean) && seldom.length > 1);
  await changes.return();
});

/**
 * Answers for a world whose log is what a test says: `rows` are its changes, the oldest first, and `notices` whether
 * whoami promises notices. `put` adds a change, with its notice where `tell` is set.
 * @param {Client} engine
 */
async function archive(engine) {
  const a = {
    notices: true,
    /** @type {{ townId: string, revision: number, cause: string }[]} */
    rows: [],
    /** Behind which revisions was asked. @type {number[]} */
    asked: [],
    /** @param {number} revision @param {boolean} [tell] */
    put(revision, tell = true) {
      const row = { townId: "t", revision, cause: "put" };
      a.rows.push(row);
      if (tell) engine.nc.publish(subject, JSON.stringify(row));
    },
    /** Waits until it was asked for what is behind a revision. @param {number} revision */
    async isAsked(revision) {
      a.asked = [];
      while (!a.asked.includes(revision)) await new Promise((resolve) => { setTimeout(resolve, 1); });
    },
  };
  const subject = await changesSubject(engine.world, "t");
  fake(engine, "whoami", () => ({ body: { world: engine.world, verbs: [], changes: a.notices } }));
  fake(engine, "town.history", (_, { after = 0, limit }) => {
    if (limit > 1) a.asked.push(after);
    return { body: { revisions: a.rows.filter((r) => r.revision > after).reverse().slice(0, limit) } };
  });
  await engine.nc.flush();
  return a;
}

/** Checks the revision of the next change. @param {AsyncGenerator<Change, void>} changes @param {number} revision */
async function isNext(changes, revision) {
  const { value } = await changes.next();
  assert.equal(value?.revision, revision);
}

test("a notice that was lost is made up for while the client stays connected", { timeout: 60_000 }, async (t) => {
  const world = await serve(t);
  const engine = await joined(t, world.url, { world: "silent" });
  const a = await archive(engine);
  const changes = followChanges(engine, { after: 0 }, { ...pace, seldom: 1e9, makeUp: 10 });
  a.put(1);
  await isNext(changes, 1);
  a.put(2, false);
  await isNext(changes, 2);
  await changes.return();
});

test("where an older log was restored, what is put from then on is yielded", { timeout: 60_000 }, async (t) => {
  const world = await serve(t);
  for (const end of [0, 1]) {
    const engine = await joined(t, world.url, { world: `restored-${end}` });
    const a = await archive(engine);
    const changes = followChanges(engine, { after: 0 }, { ...pace, makeUp: 10 });
    for (const revision of [1, 2, 3]) {
      a.put(revision);
      await isNext(changes, revision);
    }
    const next = changes.next();
    a.rows.splice(end);
    await a.isAsked(end);
    a.put(end + 1);
    assert.equal((await next).value?.revision, end + 1);
    await changes.return();
  }
});

test("a subscription that NATS refuses is known at once", { timeout: 60_000 }, async (t) => {
  const { file, admit } = access(t);
  admit({ name: "mayor", role: "agent", towns: ["mine"] });
  const world = await serve(t, "--access", file);
  const engine = await joined(t, world.url, { user: "mayor", pass: password });
  const stop = new AbortController(), { signal } = stop;
  /** @type {(seldom: boolean) => void} */
  let onSeldom = () => {};
  const said = new Promise((resolve) => { onSeldom = resolve; });
  const next = engine.changes({ townId: "other", signal, onSeldom }).next();
  assert.equal(await said, true);
  stop.abort();
  assert.equal((await next).done, true);
});

test("a subscription that NATS ends later has the server asked from then on", { timeout: 60_000 }, async (t) => {
  const world = await serve(t);
  const engine = await joined(t, world.url, { world: "later" });
  const a = await archive(engine);
  /** @type {(error: Error) => void} */
  let refuse = () => {};
  const subscribe = engine.nc.subscribe.bind(engine.nc);
  t.mock.method(engine.nc, "subscribe", (/** @type {string} */ subject, /** @type {any} */ options) => {
    if (subject.includes(".changes.")) refuse = (error) => options.callback(error, undefined);
    return subscribe(subject, options);
  });
  /** @type {boolean[]} */
  const seldom = [];
  const onSeldom = (/** @type {boolean} */ is) => seldom.push(is);
  const changes = followChanges(engine, { after: 0, onSeldom }, { ...pace, makeUp: 1e9 });
  a.put(1);
  await isNext(changes, 1);
  const next = changes.next();
  a.notices = false;
  refuse(new Error("Permissions Violation for Subscription"));
  a.put(2, false);
  assert.equal((await next).value?.revision, 2);
  assert.deepEqual(seldom.slice(0, 2), [false, true]);
  await changes.return();
});

test("a clock that is set back does not lengthen a pause", { timeout: 60_000 }, async (t) => {
  const world = await serve(t);
  const engine = await joined(t, world.url, { world: "clock" });
  fake(engine, "whoami", () => ({ body: { world: "clock", verbs: [] } }));
  fake(engine, "town.history", (n) => (n === 1 ? { error: [503, "AWAY"] }
    : { body: { revisions: [{ townId: "t", revision: 1, cause: "put" }] } }));
  await engine.nc.flush();
  let now = Date.now();
  t.mock.method(Date, "now", () => { now -= 3_600_000; return now; });
  const changes = followChanges(engine, { after: 0 }, pace);
  await isNext(changes, 1);
  await changes.return();
});
