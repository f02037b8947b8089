import assert from "node:assert/strict";
import { test } from "node:test";
import { changesPace, followChanges } from "../changes.mjs";
import { makeHandoff } from "../index.mjs";
import { access, fake, joined, link, password, serve } from "./world.mjs";

/** @import { Client } from "../index.mjs" */

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
