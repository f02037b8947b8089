import assert from "node:assert/strict";
import { createHash } from "node:crypto";
import { cpSync, rmSync } from "node:fs";
import { test } from "node:test";
import { setFlagsFromString } from "node:v8";
import { runInNewContext } from "node:vm";
import { commits, defaultPace, events } from "../follow.mjs";
import { makeHandoff } from "../index.mjs";
import { access, collect, fake, joined, link, password, serve } from "./world.mjs";

/** @import { Client } from "../index.mjs" */
/** @import { Loss, RunEvent } from "../types.mjs" */

const pace = { ...defaultPace, away: 5 };
const fast = { reconnectTimeWait: 5, reconnectJitter: 0 };
const anHourAgo = () => new Date(Date.now() - 3_600_000).toISOString();

/** Has a town executed so many handoffs, and returns their runs. @param {Client} engine @param {number} count */
async function talks(engine, count) {
  /** @type {string[]} */
  const runs = [];
  while (runs.length < count) {
    const town = await engine.town("town-threatened");
    const { runId } = await engine.send(await makeHandoff(town, {
      type: "TOWNSFOLK_TALK", actorId: "mayor-1", args: { talkType: "casual" }, reason: "They are sad.",
    }));
    runs.push(runId);
  }
  return runs;
}

/** Adds an event to a run of another producer. @param {Client} engine @param {string} runId @param {string} eventType */
async function tell(engine, runId, eventType) {
  const stepId = eventType.startsWith("Step") ? "step" : undefined;
  const key = [runId, stepId ?? "RUN", 1, eventType, "d", "1"].join("|");
  await engine.request("run.append", { townId: "town-threatened", events: [{
    eventId: crypto.randomUUID(), eventType, emittedAt: new Date().toISOString(), runId, tenantId: "default",
    projectId: "b", environmentId: "c", planId: "d", planVersion: "1", engineAttemptId: 1, logicalAttemptId: 1,
    idempotencyKey: createHash("sha256").update(key).digest("hex"), ...(stepId && { stepId }),
  }] });
}

/** Gives a town another day, or creates it. @param {Client} engine @param {string} townId @param {number} day */
async function put(engine, townId, day) {
  const { snapshot } = await engine.town("town-threatened");
  const now = await engine.town(townId).catch(() => null);
  return engine.putTown({ ...snapshot, townId, day }, { expectedSnapshotHash: now?.snapshotHash });
}

/** Reads events, each of which must be the next one of its run. @param {AsyncGenerator<RunEvent, void>} source */
function reading(source) {
  /** @type {Map<string, number>} */
  const last = new Map();
  const r = { read: 0, last, next, all };
  async function next() {
    const { value, done } = await source.next();
    assert.ok(!done && value, "no more events come");
    assert.equal(value.runSeq, (last.get(value.runId) ?? 0) + 1, `of run ${value.runId}: no gap and no double`);
    last.set(value.runId, value.runSeq);
    r.read++;
  }
  /** Reads until every run has been read to its end as it is now. @param {Client} engine @param {string[]} runs */
  async function all(engine, ...runs) {
    for (const runId of runs) {
      const { lastEventSeq } = await engine.run(runId);
      while ((last.get(runId) ?? 0) < lastEventSeq) await next();
    }
  }
  return r;
}

test("events come once each and in order, through losses of the connection", { timeout: 120_000 }, async (t) => {
  const world = await serve(t);
  const writer = await joined(t, world.url), wire = await link(t, world.url);
  const engine = await joined(t, wire.url, fast);
  await tell(writer, "long", "RunStarted");
  const r = reading(events(engine, { townId: "town-threatened", from: anHourAgo() }, pace));
  await r.all(writer, "long");
  const runs = await talks(writer, 1);
  await r.all(writer, ...runs);
  for (const eventType of ["StepStarted", "StepCompleted", "RunCompleted"]) {
    wire.set(true);
    runs.push(...await talks(writer, 45)); // with those of the last round more than a page has
    await tell(writer, "long", eventType);
    wire.set(false);
    for (let i = 0; i < 200; i++) await r.next();
    wire.set(true); // again, while the reader catches up
    runs.push(...await talks(writer, 1));
    wire.set(false);
    await r.all(writer, ...runs, "long");
  }
  assert.equal(r.read, 10 * runs.length + 4);
});

test("a slow reader misses nothing, and the server dies and comes back meanwhile", { timeout: 120_000 }, async (t) => {
  const world = await serve(t);
  const writer = await joined(t, world.url), engine = await joined(t, world.url, fast);
  const r = reading(events(engine, { from: anHourAgo() }, pace));
  const runs = await talks(writer, 1);
  await r.next();
  for (let round = 0; round < 2; round++) {
    runs.push(...await talks(writer, 20));
    await world.stop("SIGKILL");
    await world.start();
    runs.push(...await talks(writer, 20));
    await r.all(writer, ...runs);
  }
  assert.equal(r.read, 10 * runs.length);
});

test("following begins at a time, at a cursor, or now", { timeout: 120_000 }, async (t) => {
  const world = await serve(t);
  const engine = await joined(t, world.url);
  for (let day = 1; day < 20; day++) await put(engine, "other", day);
  const [first] = await talks(engine, 1);
  const { persistedAt } = (await collect(engine.runEvents(first)))[0];
  while (Date.now() <= Date.parse(persistedAt)) await engine.nc.flush();
  const runs = await talks(engine, 3);
  const [second] = await collect(engine.runEvents(runs[0]));
  for (let day = 20; day < 40; day++) await put(engine, "other", day);
  const ids = async (/** @type {AsyncGenerator<RunEvent, void>} */ source, /** @type {number} */ count) =>
    [...new Set((await collect(source, count)).map(({ runId }) => runId))];
  for (const townId of [undefined, "town-threatened"]) {
    assert.deepEqual(await ids(engine.events({ townId, from: second.persistedAt }), 30), runs);
    assert.deepEqual(await ids(engine.events({ townId, from: persistedAt }), 40), [first, ...runs]);
    assert.deepEqual(await ids(engine.events({ townId, from: anHourAgo() }), 40), [first, ...runs]);
  }
  const whole = await collect(engine.commits({ after: "0", townId: "town-threatened" }), 5);
  assert.deepEqual(whole.map(({ cause, runId }) => [cause, runId]),
    [["put", undefined], ...[first, ...runs].map((runId) => ["handoff", runId])]);
  assert.deepEqual(await ids(engine.events({ after: whole[2].cursor }), 20), runs.slice(1));
  const late = new Date(Date.now() + 3_600_000).toISOString();
  const none = new AbortController();
  const future = engine.events({ from: late, signal: none.signal }).next();
  const now = engine.events().next();
  await engine.request("event.list", {}); // the cursor of both is asked for
  const [last] = await talks(engine, 1);
  assert.equal((await now).value?.runId, last);
  none.abort();
  assert.equal((await future).done, true);
  for (const from of /** @type {any[]} */ (["yesterday", "42", 42, new Date("yesterday")])) {
    await assert.rejects(engine.events({ from }).next(), { name: "RangeError",
      message: /^from is a time, such as "2026-02-16T10:00:00Z", not .*: a cursor goes into after, and a runSeq into/ });
  }
  await assert.rejects(engine.commits({ after: "999999" }).next(), { name: "ReplyError", code: "INVALID_CURSOR" });
});

test("a run is followed to its end, through a loss", { timeout: 120_000 }, async (t) => {
  const world = await serve(t);
  const writer = await joined(t, world.url), wire = await link(t, world.url);
  const engine = await joined(t, wire.url, fast);
  await tell(writer, "long", "RunStarted");
  await tell(writer, "long", "StepStarted");
  const source = events(engine, { runId: "long", afterSeq: 1 }, pace);
  const types = async (/** @type {string[]} */ ...expected) => {
    for (const eventType of expected) assert.equal((await source.next()).value?.eventType, eventType);
  };
  await types("StepStarted");
  await talks(writer, 1);
  await tell(writer, "long", "StepCompleted");
  await types("StepCompleted");
  wire.set(true);
  await tell(writer, "long", "RunPaused");
  await talks(writer, 1);
  wire.set(false);
  await types("RunPaused");
  await tell(writer, "long", "RunResumed");
  await tell(writer, "long", "RunCompleted");
  await types("RunResumed", "RunCompleted");
  assert.equal((await source.next()).done, true);
});

test("the events of a run that a page leaves out are asked for", { timeout: 60_000 }, async (t) => {
  const world = await serve(t);
  const engine = await joined(t, world.url, { world: "gaps" });
  const event = (/** @type {number} */ runSeq, eventType = "Told") => ({ runId: "r", runSeq, eventType });
  const stored = [event(1), event(2), event(3), event(4, "RunCompleted")];
  const started = { townId: "t" };
  fake(engine, "run.get", () => ({ body: { runId: "r", status: "RUNNING", lastEventSeq: 1, metadata: { started } } }));
  let kept = 1;
  fake(engine, "run.events", (_, { afterSeq = 0 }) => (
    { body: { events: stored.slice(afterSeq, kept), lastEventSeq: kept } }));
  const asked = fake(engine, "event.list", (n) => {
    if (n === 1) return { body: { commits: [], cursor: "7" } };
    if (n === 2) {
      kept = 3;
      return { body: { commits: [{ cursor: "9", events: [{ ...event(1), runId: "s" }, stored[2]] }], cursor: "9" } };
    }
    kept = 4;
    return { body: { commits: [], cursor: "12", gap: true } };
  });
  await engine.nc.flush();
  assert.deepEqual(await collect(engine.events({ runId: "r" })), stored);
  assert.deepEqual(asked.slice(1).map(({ after, townId }) => [after, townId]), [["7", "t"], ["9", "t"]]);
});

test("the damaged end of a run ends following it", { timeout: 60_000 }, async (t) => {
  const world = await serve(t);
  const engine = await joined(t, world.url, { world: "damage" });
  const metadata = { started: { townId: "t" } };
  fake(engine, "run.get", () => ({ body: { runId: "r", status: "RUNNING", lastEventSeq: 1, metadata } }));
  const stored = [{ runId: "r", runSeq: 1, eventType: "RunStarted" }];
  fake(engine, "run.events", (n) => (
    n === 1 ? { body: { events: stored, lastEventSeq: 1 } } : { error: [500, "RUN_DAMAGED"] }));
  fake(engine, "event.list", (n) => (
    n === 2 ? { body: { commits: [{ cursor: "9", damaged: true }], cursor: "9" } }
      : { body: { commits: [], cursor: "9" } }));
  await engine.nc.flush();
  const source = engine.events({ runId: "r", signal: AbortSignal.timeout(30_000) });
  assert.deepEqual((await source.next()).value, stored[0]);
  await assert.rejects(source.next(), { name: "ReplyError", code: "RUN_DAMAGED" });
});

test("commits that may be missing are told, and following goes on", { timeout: 60_000 }, async (t) => {
  const world = await serve(t);
  const engine = await joined(t, world.url, { world: "lossy" });
  const good = (/** @type {string} */ cursor) => ({ cursor, at: anHourAgo(), cause: "refused", events: [{ runSeq: 1, runId: cursor }] });
  fake(engine, "event.list", (n, { after }) => {
    if (n === 1) return { error: [503, "INDEX_BEHIND", 1] };
    if (n === 2) return { body: { commits: [{ cursor: "5", damaged: true }, good("6")], cursor: "6" } };
    if (n === 3) return { body: { commits: [good("8")], cursor: "8", gap: true } };
    if (n === 4) return { error: [400, "INVALID_CURSOR"] };
    return { body: { commits: after === "1" ? [good("2")] : [], cursor: after === "1" ? "2" : "1" } };
  });
  await engine.nc.flush();
  /** @type {Loss[]} */
  const losses = [];
  const found = await collect(engine.events({ after: "4", onLost: (loss) => losses.push(loss) }), 3);
  assert.deepEqual(found.map(({ runId }) => runId), ["6", "8", "2"]);
  assert.deepEqual(losses.map(({ reason, cursor }) => [reason, cursor]),
    [["DAMAGED", "5"], ["GAP", "8"], ["INVALID_CURSOR", "1"]]);

  const oldest = await joined(t, world.url, { world: "oldest" }); // nothing is lost before the oldest commit
  fake(oldest, "event.list", (_, { after }) => (
    { body: { commits: [good(after === "0" ? "7" : "9")], cursor: after === "0" ? "7" : "9", gap: true } }));
  await oldest.nc.flush();
  losses.length = 0;
  await collect(oldest.commits({ after: "0", onLost: (loss) => losses.push(loss) }), 2);
  assert.deepEqual(losses, [{ reason: "GAP", cursor: "9" }]);
});

test("if an older log is restored, the new commits are yielded", { timeout: 120_000 }, async (t) => {
  const world = await serve(t);
  const older = `${world.data}-older`;
  await world.stop();
  cpSync(world.data, older, { recursive: true });
  await world.start();
  const writer = await joined(t, world.url), engine = await joined(t, world.url, fast);
  /** @type {Loss[]} */
  const losses = [];
  let told = () => {};
  const lost = new Promise((resolve) => { told = () => resolve(null); });
  const source = commits(engine, { after: "0", onLost: (loss) => { losses.push(loss); told(); } }, pace);
  const runs = await talks(writer, 9);
  for (let last; last !== runs[8];) last = (await source.next()).value?.runId;
  const next = source.next();
  await world.stop();
  rmSync(world.data, { recursive: true });
  world.data = older;
  await world.start();
  await lost;
  const [run] = await talks(writer, 1);
  assert.equal((await next).value?.runId, run);
  assert.deepEqual(losses.map(({ reason }) => reason), ["INVALID_CURSOR"]);
});

test("changes that no run event says come once each, also through a loss", { timeout: 120_000 }, async (t) => {
  const world = await serve(t);
  const writer = await joined(t, world.url), wire = await link(t, world.url);
  const engine = await joined(t, wire.url, fast);
  const first = await put(writer, "a", 1), second = await put(writer, "b", 1);
  const all = engine.changes({ after: first.revision }), of = engine.changes({ townId: "b", after: first.revision });
  /** @param {typeof all} source @param {import("../types.mjs").Town} town */
  const isNext = async (source, town) => {
    const { townId, revision, hash, cause } = /** @type {any} */ ((await source.next()).value);
    assert.deepEqual([townId, revision, hash, cause], [town.townId, town.revision, town.snapshotHash, "put"]);
  };
  await isNext(all, second);
  await isNext(of, second);
  await isNext(all, await put(writer, "a", 2));
  await talks(writer, 1);
  wire.set(true);
  const missed = [];
  for (const day of [2, 3, 4]) missed.push(await put(writer, "b", day));
  wire.set(false);
  for (const each of missed) {
    await isNext(all, each);
    await isNext(of, each);
  }
  const last = all.next();
  await engine.nc.close();
  assert.deepEqual(await last, { value: undefined, done: true });
});

test("a user who may read some towns follows those alone", { timeout: 120_000 }, async (t) => {
  const { file, admit } = access(t);
  admit({ name: "olga", role: "operator" }, { name: "mayor", role: "agent", towns: ["mine"], read: ["mine"] });
  const world = await serve(t, "--access", file);
  const as = (/** @type {string} */ user) => joined(t, world.url, { user, pass: password });
  const operator = await as("olga"), mayor = await as("mayor");
  await put(operator, "other", 1);
  await put(operator, "mine", 1);
  await put(operator, "other", 2);
  await put(operator, "mine", 2);
  const found = await collect(mayor.commits({ after: "0" }), 2);
  assert.deepEqual(found.map(({ townId, epoch }) => [townId, epoch]), [["mine", 1], ["mine", 2]]);
  await assert.rejects(mayor.commits({ townId: "other" }).next(), { name: "ReplyError", code: "FORBIDDEN" });
});

test("a request that waits is not sent again while the server waits", { timeout: 60_000 }, async (t) => {
  const world = await serve(t);
  const engine = await joined(t, world.url, { world: "patient", callTimeout: 1000 });
  const asked = fake(engine, "event.list", (_, { waitMs }) => new Promise((resolve) => {
    setTimeout(resolve, waitMs, { body: { commits: [], cursor: "1" } });
  }));
  await engine.nc.flush();
  await engine.request("event.list", { after: "1", waitMs: 2000 });
  assert.equal(asked.length, 1);
});

/** Collects what is not held any more. */
const collectGarbage = () => {
  setFlagsFromString("--expose-gc");
  runInNewContext("gc")();
};

test("an iteration that has ended leaves nothing behind", { timeout: 120_000 }, async (t) => {
  const world = await serve(t);
  const engine = await joined(t, world.url);
  await talks(engine, 1);
  const { subscriptions } = /** @type {any} */ (engine.nc).protocol;
  const before = subscriptions.subs.size;
  /** @type {WeakRef<object>[]} */
  const held = [];
  for (let i = 0; i < 20; i++) {
    const what = { from: anHourAgo() };
    held.push(new WeakRef(what));
    for await (const _ of events(engine, what, pace)) break;
  }
  assert.equal(subscriptions.subs.size, before);
  while (held.slice(0, -1).some((ref) => ref.deref())) { // ends with the test's time where one is held
    await new Promise((resolve) => { setTimeout(resolve, 10); });
    collectGarbage();
  }
});

test("a refusal ends following, and a server that is away does not", async (t) => {
  const world = await serve(t);
  const refusing = await joined(t, world.url, { world: "refusing" });
  fake(refusing, "event.list", () => ({ error: [500, "INTERNAL"] }));
  await refusing.nc.flush();
  await assert.rejects(events(refusing, {}, pace).next(), { code: "INTERNAL" });

  const away = await joined(t, world.url, { world: "away", callTimeout: 50 });
  const source = events(away, { after: "1" }, { ...pace, wait: 50 });
  const first = source.next(); // nobody is there
  const event = { runId: "good", runSeq: 1, eventType: "RunStarted" };
  fake(away, "event.list", (n) => {
    if (n === 1) return null;
    if (n < 4) return { error: [n === 2 ? 503 : 429, "BUSY", 1] };
    return { body: { commits: [{ cursor: "2", events: [event] }], cursor: "2" } };
  });
  assert.deepEqual((await first).value, event);
  await source.return();
});

test("a signal ends following while the server is away", { timeout: 60_000 }, async (t) => {
  const world = await serve(t);
  const wire = await link(t, world.url);
  const engine = await joined(t, wire.url, { reconnectTimeWait: 3_600_000 });
  const lost = new Promise((resolve) => { engine.onDisconnect(() => resolve(null)); });
  wire.set(true);
  await lost;
  const ending = new AbortController();
  const first = engine.events({ signal: ending.signal }).next();
  await new Promise((resolve) => { setImmediate(resolve); });
  ending.abort();
  assert.deepEqual(await first, { value: undefined, done: true });
});
