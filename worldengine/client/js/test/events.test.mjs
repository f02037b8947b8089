import assert from "node:assert/strict";
import { createHash } from "node:crypto";
import { readdirSync, readFileSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import { test } from "node:test";
import { setFlagsFromString } from "node:v8";
import { runInNewContext } from "node:vm";
import { makeHandoff, RunError } from "../index.mjs";
import { defaultPace, follow } from "../events.mjs";
import { fake, joined, link, serve } from "./world.mjs";

/** @import { Client } from "../index.mjs" */
/** @import { Followed } from "../events.mjs" */

/** How late an event may come in these tests, so that an outage is soon longer. */
const pace = { ...defaultPace, late: 10, away: 5, page: 7, sweep: 20 };

/**
 * Has a town executed so many handoffs, and more until they took longer than an event may come late. It returns
 * their runs.
 * @param {Client} engine @param {number} least
 */
async function talks(engine, least) {
  /** @type {string[]} */
  const runs = [];
  let first = Infinity, last = 0;
  while (runs.length < least || last - first < 5 * pace.late) {
    const town = await engine.town("town-threatened");
    const { runId } = await engine.send(await makeHandoff(town, {
      type: "TOWNSFOLK_TALK", actorId: "mayor-1", args: { talkType: "casual" }, reason: "They are sad.",
    }));
    for await (const { persistedAt } of engine.runEvents(runId, { afterSeq: 9 })) last = Date.parse(persistedAt);
    first = Math.min(first, last);
    runs.push(runId);
  }
  return runs;
}

/** Adds an event to a run of another producer. @param {Client} engine @param {string} runId @param {string} eventType */
async function tell(engine, runId, eventType) {
  const stepId = eventType.startsWith("Step") ? "step" : undefined;
  const { appended } = await engine.request("run.append", { townId: "town-threatened", events: [{
    eventId: crypto.randomUUID(), eventType, emittedAt: new Date().toISOString(), runId, tenantId: "default",
    projectId: "b", environmentId: "c", planId: "d", planVersion: "1", engineAttemptId: 1, logicalAttemptId: 1,
    idempotencyKey: key(runId, stepId, eventType), ...(stepId && { stepId }),
  }] });
  return appended[0];
}

/** The idempotency key of a run event. @param {string} runId @param {string | undefined} stepId @param {string} eventType */
const key = (runId, stepId, eventType) =>
  createHash("sha256").update([runId, stepId ?? "RUN", 1, eventType, "d", "1"].join("|")).digest("hex");

/** Reads what is followed, over a link of its own.
 * @param {import("node:test").TestContext} t @param {Client} writer @param {string} url @param {Followed} what */
async function reader(t, writer, url, what) {
  const wire = await link(t, url);
  const engine = await joined(t, wire.url, { reconnectTimeWait: 5, reconnectJitter: 0 });
  const events = follow(engine, what, pace);
  t.after(async () => { await engine.nc.close(); await events.return(); });
  /** @type {Map<string, number>} */
  const last = new Map();
  const r = { cut: wire.set, last, read: 0, event, all };
  async function event() {
    const { value, done } = await events.next();
    assert.ok(!done && value, "no more events come");
    assert.equal(value.runSeq, (last.get(value.runId) ?? 0) + 1, `of run ${value.runId}: no gap and no double`);
    last.set(value.runId, value.runSeq);
    r.read++;
  }
  /** Reads until every run has been read to its end as it is now. @param {string[]} runs */
  async function all(...runs) {
    for (const runId of runs) {
      const { lastEventSeq } = await writer.run(runId);
      while ((last.get(runId) ?? 0) < lastEventSeq) await event();
    }
  }
  return r;
}

const anHourAgo = () => new Date(Date.now() - 3_600_000).toISOString();

test("what began in outages longer than events may be late comes, although a known run goes on until their end", async (t) => {
  const world = await serve(t);
  const engine = await joined(t, world.url);
  await tell(engine, "long", "RunStarted");
  const r = await reader(t, engine, world.url, { townId: "town-threatened", from: anHourAgo() });
  await r.all("long");
  /** @type {string[]} */
  const runs = [];
  for (const [one, two] of [["StepStarted", "StepCompleted"], ["RunPaused", "RunResumed"]]) {
    r.cut(true);
    runs.push(...await talks(engine, 20));
    await tell(engine, "long", one);
    await tell(engine, "long", two);
    r.cut(false);
    await r.all(...runs, "long");
    runs.push(...await talks(engine, 1));
    await r.all(...runs);
  }
  assert.equal(r.read, 10 * runs.length + 5);
});

test("a slow reader gets each event once, in its order", async (t) => {
  const world = await serve(t);
  const engine = await joined(t, world.url);
  const [first] = await talks(engine, 1);
  const slow = await joined(t, world.url);
  const events = follow(slow, { from: anHourAgo() }, { ...pace, waiting: 5 });
  /** @type {Map<string, number>} */
  const last = new Map();
  const read = async () => {
    const { value, done } = await events.next();
    assert.ok(!done && value, "no more events come");
    assert.equal(value.runSeq, (last.get(value.runId) ?? 0) + 1, `of run ${value.runId}: no gap and no double`);
    last.set(value.runId, value.runSeq);
  };
  await read();
  for (let round = 0; round < 2; round++) {
    const runs = await talks(engine, 20); // 200 events, while the reader does something else
    await slow.nc.flush(); // they have come to it
    for (const runId of [first, ...runs]) while ((last.get(runId) ?? 0) < 10) await read();
  }
  await events.return();
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
    /** @type {Followed} */
    const what = { from: anHourAgo() };
    held.push(new WeakRef(what));
    for await (const _ of follow(engine, what, pace)) break;
  }
  assert.equal(subscriptions.subs.size, before);
  while (held.slice(0, -1).some((ref) => ref.deref())) { // ends with the test's time where one is held
    await new Promise((resolve) => { setTimeout(resolve, 10); });
    collectGarbage();
  }
});

test("the connection is lost again while the reader catches up", async (t) => {
  const world = await serve(t);
  const engine = await joined(t, world.url);
  const runs = await talks(engine, 1);
  const r = await reader(t, engine, world.url, { from: anHourAgo() });
  await r.all(...runs);
  r.cut(true);
  runs.push(...await talks(engine, 20));
  r.cut(false);
  for (let i = 0; i < 55; i++) await r.event();
  r.cut(true);
  runs.push(...await talks(engine, 20));
  r.cut(false);
  await r.all(...runs);
  assert.equal(r.read, 10 * runs.length);
});

test("of a run that began before, there is what comes in an outage", async (t) => {
  const world = await serve(t);
  const engine = await joined(t, world.url);
  await tell(engine, "before", "RunStarted");
  const { persistedAt } = await tell(engine, "before", "StepStarted");
  const from = Date.parse(persistedAt) + 1;
  while (Date.now() <= from) await engine.nc.flush();
  const runs = await talks(engine, 1);
  const r = await reader(t, engine, world.url, { from: new Date(from).toISOString() });
  r.last.set("before", 2);
  await r.all(...runs);
  r.cut(true);
  await tell(engine, "before", "StepCompleted");
  await tell(engine, "before", "RunCompleted");
  runs.push(...await talks(engine, 20));
  r.cut(false);
  await r.all(...runs, "before");
  assert.equal(r.read, 10 * runs.length + 2);
});

test("an open run that is older than openSince misses nothing of an outage, and has no double", async (t) => {
  const world = await serve(t);
  const engine = await joined(t, world.url);
  for (const run of ["silent", "late"]) await tell(engine, run, "RunStarted");
  await tell(engine, "silent", "StepStarted");
  const { persistedAt } = await tell(engine, "late", "StepStarted");
  const from = Date.parse(persistedAt) + 2;
  while (Date.now() <= from) await engine.nc.flush();
  const runs = await talks(engine, 1);
  const r = await reader(t, engine, world.url, { from: new Date(from).toISOString(), openSince: 0 });
  for (const run of ["silent", "late"]) r.last.set(run, 2);
  await r.all(...runs);
  r.cut(true);
  await tell(engine, "silent", "StepCompleted");
  await tell(engine, "silent", "RunPaused");
  runs.push(...await talks(engine, 20));
  r.cut(false);
  await r.all(...runs, "silent");
  await tell(engine, "late", "StepCompleted");
  await tell(engine, "silent", "RunResumed");
  await r.all("late", "silent");
  r.cut(true);
  for (const run of ["silent", "late"]) await tell(engine, run, "RunCompleted");
  r.cut(false);
  await r.all("late", "silent");
  assert.equal(r.read, 10 * runs.length + 4 + 2);
});

test("a damaged run is told once, and the others go on", async (t) => {
  const world = await serve(t);
  const engine = await joined(t, world.url);
  await tell(engine, "damaged", "RunStarted");
  const runs = await talks(engine, 1);
  /** @type {RunError[]} */
  const told = [];
  const r = await reader(t, engine, world.url, { from: anHourAgo(), onRunError: (error) => told.push(error) });
  await r.all(...runs, "damaged");
  r.cut(true);
  await tell(engine, "damaged", "StepStarted");
  runs.push(...await talks(engine, 1)); // NATS takes off what is damaged at the end of a stream
  await world.stop();
  damage(world.data, "damaged");
  await world.start();
  for (let i = 0; i < 3; i++) {
    runs.push(...await talks(engine, 1));
    r.cut(false);
    await r.all(...runs);
    r.cut(true);
  }
  assert.equal(r.read, 10 * runs.length + 1);
  assert.deepEqual(told.map(({ name, runId, afterSeq, code }) => [name, runId, afterSeq, code]),
    [["RunError", "damaged", 1, "RUN_DAMAGED"]]);

  await assert.rejects(async () => {
    for await (const _ of engine.events({ runId: "damaged", afterSeq: 1 }));
  }, { code: "RUN_DAMAGED" });
});

/** Changes the last event of a run on the disk. @param {string} data @param {string} runId */
function damage(data, runId) {
  const found = readdirSync(data, { recursive: true, encoding: "utf8" })
    .filter((path) => path.includes("WORLD_main_RUNEVENTS") && path.endsWith(".blk"));
  assert.equal(found.length, 1);
  const path = join(data, found[0]);
  const block = readFileSync(path);
  block[block.lastIndexOf(runId)] ^= 1;
  writeFileSync(path, block);
}

test("a list that is refused ends the events, and a server that is away does not", async (t) => {
  const world = await serve(t);
  const refusing = await joined(t, world.url, { world: "refusing" });
  fake(refusing, "run.list", () => ({ error: [500, "INTERNAL"] }));
  await refusing.nc.flush();
  await assert.rejects(follow(refusing, {}, pace).next(), { code: "INTERNAL" });

  const away = await joined(t, world.url, { world: "away", callTimeout: 50 });
  const events = follow(away, { from: anHourAgo() }, pace);
  const first = events.next(); // nobody is there
  const page = { runs: [{ runId: "good", status: "RUNNING", lastEventSeq: 1 }] };
  fake(away, "run.list", (n, body) => {
    if (n === 1) return null;
    if (n < 4) return { error: [n === 2 ? 503 : 429, "BUSY", 1] };
    return { body: body.status ? { runs: [] } : page };
  });
  const event = { runId: "good", runSeq: 1, eventType: "RunStarted", persistedAt: new Date().toISOString() };
  fake(away, "run.events", (n) => (n === 1 ? { error: [503, "EVENTS_BEHIND"] }
    : { body: { events: [event], lastEventSeq: 1 } }));
  assert.deepEqual((await first).value, event);
  await events.return();
});

test("a signal ends events while the server is away", { timeout: 60_000 }, async (t) => {
  const world = await serve(t);
  const wire = await link(t, world.url);
  const engine = await joined(t, wire.url, { reconnectTimeWait: 3_600_000 });
  const lost = new Promise((resolve) => { engine.onDisconnect(() => resolve(null)); });
  wire.set(true);
  await lost;
  const ending = new AbortController();
  const { nc } = engine;
  const flush = nc.flush.bind(nc);
  const flushing = new Promise((resolve) => {
    nc.flush = () => { resolve(null); return flush(); };
  });
  const first = follow(engine, { signal: ending.signal }, pace).next();
  await flushing;
  ending.abort();
  assert.deepEqual(await first, { value: undefined, done: true });
});
