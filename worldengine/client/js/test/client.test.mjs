import assert from "node:assert/strict";
import { before, after, describe, test } from "node:test";
import { connect, isRevision1, makeHandoff, ReplyError, UnavailableError, verifyResult } from "../index.mjs";
import { collect, fake, joined, link, respond, serve } from "./world.mjs";

/** @import { Client } from "../index.mjs" */

/** @param {Client} engine @param {string} [reason] @param {string} [townId] */
async function talk(engine, reason = "They are sad.", townId = "town-threatened") {
  const town = await engine.town(townId);
  return makeHandoff(town, {
    type: "TOWNSFOLK_TALK", actorId: "mayor-1", args: { talkType: "casual" }, reason, priority: 0.5,
    preconditions: [{ kind: "talk_type_supported", expected: "casual" }],
  });
}

describe("a world", () => {
  /** @type {Awaited<ReturnType<typeof serve>>} */
  let world;
  /** @type {(() => Promise<void>)[]} */
  const cleanups = [];
  before(async () => { world = await serve({ after: (f) => cleanups.push(f) }); });
  after(async () => { for (const f of cleanups) await f(); });

  test("an agent looks, proposes, sends, and reads what became of it", async (t) => {
    const engine = await joined(t, world.url);
    const town = await engine.town("town-threatened");
    const handoff = await talk(engine);
    const would = await engine.dryRun(handoff);
    const { result, runId, duplicate } = await engine.send(handoff);
    assert.deepEqual(would, { result, apply: undefined });
    assert.equal(result.status, "executed");
    assert.equal(duplicate, undefined);
    assert.equal(await verifyResult(result), null);
    assert.equal(result.worldState?.postExecutionDecisionEpoch, town.decisionEpoch + 1);

    assert.deepEqual(await engine.result(handoff.idempotencyKey, { townId: town.townId }), { runId, result });
    assert.equal((await engine.run(runId)).status, "COMPLETED");
    const events = await collect(engine.runEvents(runId, { limit: 3 }));
    assert.deepEqual(events.map((e) => e.runSeq), [1, 2, 3, 4, 5, 6, 7, 8, 9, 10]);

    const again = await engine.send(handoff);
    assert.equal(again.result.status, "duplicate", "an answer that was not lost is not replaced");
    assert.equal(again.result.evaluation.duplicateCheck.duplicateOf, result.resultId);
  });

  test("a handoff has its trace", async (t) => {
    const engine = await joined(t, world.url), traced = await joined(t, world.url, { world: "traced" });
    const headers = { traceparent: "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01", tracestate: "rojo=1" };
    const handoff = await talk(engine, "Traced."), { result } = await engine.send(handoff);
    const came = traced.nc.subscribe("worldengine.v1.traced.handoff", { max: 1 });
    const sent = traced.send(handoff, { headers });
    for await (const msg of came) {
      for (const [name, value] of Object.entries(headers)) assert.equal(msg.headers?.get(name), value);
      msg.respond(JSON.stringify(result));
    }
    assert.deepEqual((await sent).result, result);
  });

  test("towns are listed page by page, put and replaced", async (t) => {
    const engine = await joined(t, world.url);
    const { snapshot } = await engine.town("town-threatened");
    const ids = ["aaa", "b c", "d.é", "x".repeat(200)];
    for (const townId of ids) await engine.putTown({ ...snapshot, townId });
    const listed = await collect(engine.towns({ limit: 2 }));
    for (const id of ids) assert.ok(listed.some(({ townId }) => townId === id), id);
    assert.deepEqual((await collect(engine.worlds({ limit: 1 }))).map((w) => [w.world, w.state]), [["main", "served"]]);

    const stored = await engine.town("aaa");
    await assert.rejects(engine.putTown(stored.snapshot), { name: "ReplyError", code: "TOWN_EXISTS", status: 409 });
    const next = await engine.putTown({ ...stored.snapshot, day: stored.snapshot.day + 1 },
      { expectedSnapshotHash: stored.snapshotHash });
    assert.equal(next.decisionEpoch, stored.decisionEpoch + 1);
  });

  test("members of a town are patched, and it is said what takes approval there", async (t) => {
    const engine = await joined(t, world.url);
    const { snapshot } = await engine.town("town-threatened");
    const put = await engine.putTown({ ...snapshot, townId: "patched" }, { approval: ["SALVAGE_PLAN"] });
    assert.deepEqual(put.approval, ["SALVAGE_PLAN"]);
    const patch = { day: snapshot.day + 2, pressure: { hope: 0.75 } };
    const next = await engine.patchTown("patched", patch, { expectedSnapshotHash: put.snapshotHash });
    assert.deepEqual(next.snapshot, { ...put.snapshot, day: patch.day, pressure: { ...snapshot.pressure, hope: 0.75 } });
    assert.deepEqual(next.approval, ["SALVAGE_PLAN"], "it stays as it is");
    await assert.rejects(engine.patchTown("patched", {}, { expectedSnapshotHash: put.snapshotHash }),
      { name: "ReplyError", code: "SNAPSHOT_CONFLICT", status: 409 });
    const free = await engine.patchTown("patched", {}, { expectedSnapshotHash: next.snapshotHash, approval: [] });
    assert.deepEqual([free.snapshotHash, free.approval ?? []], [next.snapshotHash, []]);
  });

  test("alerts are listed page by page, and acknowledged", async (t) => {
    const engine = await joined(t, world.url);
    assert.deepEqual(await collect(engine.alerts()), []);
    await assert.rejects(engine.acknowledgeAlert(1, { reason: "Seen." }), { code: "UNKNOWN_ALERT", status: 404 });
    const stored = await joined(t, world.url, { world: "alerts" });
    const pages = fake(stored, "alert.list", (n) => ({ body: n === 1 ? { alerts: [{ seq: 9 }], next: 7 } : { alerts: [{ seq: 3 }] } }));
    const acknowledged = fake(stored, "alert.ack", () => ({ body: { seq: 9, acknowledged: { by: "ada" } } }));
    await stored.nc.flush();
    assert.deepEqual((await collect(stored.alerts({ unacknowledged: true }))).map(({ seq }) => seq), [9, 3]);
    assert.deepEqual(pages, [{ unacknowledged: true }, { unacknowledged: true, after: 7 }]);
    assert.equal((await stored.acknowledgeAlert(9, { actorId: "ada", reason: "Seen." })).acknowledged?.by, "ada");
    assert.deepEqual(acknowledged, [{ seq: 9, actorId: "ada", reason: "Seen." }]);
  });

  test("a first request that is too large is refused before it is sent", async (t) => {
    const engine = await joined(t, world.url);
    await assert.rejects(engine.request("town.put", { snapshot: "x".repeat(2 << 20) }), { code: "PAYLOAD_TOO_LARGE" });
  });

  test("what cannot be asked is refused before it is sent", async (t) => {
    const engine = await joined(t, world.url);
    for (const timeout of [NaN, /** @type {any} */ ("5s")]) {
      await assert.rejects(engine.town("x", { timeout }), RangeError);
    }
    for (const name of ["", "a.b", "a b", ">", "*"]) {
      await assert.rejects(connect({ servers: world.url, world: name }), RangeError);
    }
    for (const runId of ["", "a|b", "x".repeat(257)]) await assert.rejects(engine.events({ runId }).next(), RangeError);
    const large = await talk(engine, "x".repeat(2 << 20));
    await assert.rejects(engine.send(large), { name: "ReplyError", code: "PAYLOAD_TOO_LARGE", status: 413 });
    const nothing = /** @type {any} */ (null);
    await assert.rejects(engine.send(nothing), { code: "SCHEMA_VALIDATION_FAILED" });
    await assert.rejects(makeHandoff(await engine.town("town-threatened"), { type: /** @type {any} */ ("constructor"),
      actorId: "a", args: {}, reason: "r" }), { name: "TypeError", message: /type must be one of/ });
  });

  test("a call may take as long as there is", async (t) => {
    const engine = await joined(t, world.url, { callTimeout: Infinity });
    assert.equal((await engine.town("town-threatened")).townId, "town-threatened");
    assert.equal((await engine.town("town-threatened", { timeout: 1e12 })).townId, "town-threatened");
  });

  test("a connection is closed once, and says so afterwards", async (t) => {
    const engine = await joined(t, world.url);
    const events = engine.events();
    const first = events.next();
    await engine.town("town-threatened");
    await Promise.all([engine.close(), engine.close()]);
    await engine.close();
    assert.deepEqual(await first, { value: undefined, done: true });
    await assert.rejects(engine.town("town-threatened"), { code: "CONNECTION", message: /is closed/ });
    await assert.rejects(engine.events().next(), { code: "CONNECTION" });
  });

  test("a node of NATS that vanishes, and closes no connection, is left before a call is over", async (t) => {
    const wire = await link(t, world.url), engine = await joined(t, wire.url);
    const handoff = await talk(engine, "A node is gone.");
    wire.hush();
    assert.equal((await engine.send(handoff)).result.status, "executed");
  });

  test("a connection is closed while its server is away", { timeout: 60_000 }, async (t) => {
    const wire = await link(t, world.url);
    const engine = await joined(t, wire.url, { reconnectTimeWait: 3_600_000 });
    const lost = new Promise((resolve) => { engine.onDisconnect(() => resolve(null)); });
    const first = engine.events().next();
    await engine.town("town-threatened");
    wire.set(true);
    await lost;
    await engine.close();
    assert.deepEqual(await first, { value: undefined, done: true });
  });

  test("an error has its code, its sentence and its paths", async (t) => {
    const engine = await joined(t, world.url);
    await assert.rejects(engine.town("nowhere"), { code: "UNKNOWN_TOWN", status: 404 });
    const wrong = { ...await talk(engine), command: "op me" };
    await assert.rejects(engine.send(wrong), (/** @type {ReplyError} */ error) => {
      assert.equal(error.code, "SCHEMA_VALIDATION_FAILED");
      assert.ok(error.details.some(({ path }) => path === "/command"));
      return true;
    });
    const nowhere = await joined(t, world.url, { world: "nowhere" });
    await assert.rejects(nowhere.town("x"), { name: "UnavailableError", code: "NO_RESPONDERS" });
  });

  test("a handoff of a paused town waits, and its caller is told", async (t) => {
    const engine = await joined(t, world.url);
    const { snapshot } = await engine.town("town-threatened");
    await engine.putTown({ ...snapshot, townId: "asleep" });
    const handoff = await talk(engine, "Wake up.", "asleep");
    await engine.request("control.pause", { townId: "asleep", actorId: "ada", reason: "a festival" });
    /** @type {UnavailableError[]} */
    const told = [];
    const { result } = await engine.send(handoff, {
      onPaused: (why) => {
        if (told.push(why) === 1) engine.request("control.resume", { townId: "asleep" });
      },
    });
    assert.equal(told[0].code, "TOWN_PAUSED");
    assert.match(told[0].message, /"asleep" is paused by ada/);
    assert.match(result.status, /executed|duplicate/);
  });

  test("onPaused is not called when the handoff is answered", async (t) => {
    const engine = await joined(t, world.url);
    const late = await joined(t, world.url, { world: "late" });
    const handoff = await talk(engine, "Are you awake?");
    const { result } = await engine.send(handoff);
    let answer = (/** @type {{ body: unknown }} */ _) => {};
    fake(late, "handoff", () => new Promise((resolve) => { answer = resolve; }));
    /** @type {Promise<unknown>} */
    let sent = Promise.resolve();
    const asked = fake(late, "town.get", async (_, { townId }) => {
      answer({ body: result });
      await sent;
      return { body: { townId, pendingRunId: "the-run", pluginAbsentSince: "2026-11-22T20:00:00Z" } };
    });
    await late.nc.flush();
    let told = 0;
    sent = late.send(handoff, { onPaused: () => told++ });
    await sent;
    while (asked.length < 1) await late.nc.flush();
    for (let i = 0; i < 10; i++) await late.nc.flush();
    assert.equal(told, 0);
  });

  test("a handoff that waits until its deadline fails with the pause", async (t) => {
    const engine = await joined(t, world.url);
    const { snapshot } = await engine.town("town-threatened");
    await engine.putTown({ ...snapshot, townId: "still" });
    const handoff = await talk(engine, "Wake up.", "still");
    await engine.request("control.pause", { townId: "still" });
    await assert.rejects(engine.send(handoff, { timeout: 6000 }), { code: "TOWN_PAUSED" });
  });

  test("a handoff behind a command whose game is away is told so, and fails with that", async (t) => {
    const handoff = await talk(await joined(t, world.url), "Is the game there?");
    const since = "2026-11-22T20:00:00Z", behind = { pendingRunId: "the-run", pluginAbsentSince: since };
    await Promise.all([behind, { pendingRunId: "the-run" }, { pluginAbsentSince: since }].map(async (state, i) => {
      const engine = await joined(t, world.url, { world: `behind${i}`, callTimeout: 4000 });
      fake(engine, "handoff", () => null);
      fake(engine, "town.get", (_, { townId }) => ({ body: { townId, ...state } }));
      await engine.nc.flush();
      /** @type {string[]} */
      const told = [];
      const sent = engine.send(handoff, { onPaused: ({ code }) => told.push(code) });
      if (state === behind) {
        await assert.rejects(sent, { code: "PLUGIN_ABSENT", message: /no plugin since 2026-11-22T20:00:00Z.* run the-run / });
        assert.equal(told[0], "PLUGIN_ABSENT");
      } else {
        await assert.rejects(sent, { code: "TIMEOUT" });
        assert.deepEqual(told, []);
      }
    }));
  });

  test("events of a run are followed to its end, from any place", async (t) => {
    const engine = await joined(t, world.url);
    const { runId } = await engine.send(await talk(engine, "Again."));
    const all = await collect(engine.events({ runId }));
    assert.equal(all.at(-1)?.eventType, "RunCompleted");
    assert.deepEqual(all.map((e) => e.runSeq), all.map((_, i) => i + 1));
    assert.deepEqual(await collect(engine.events({ runId, afterSeq: 4 })), all.slice(4));
    assert.deepEqual(await collect(engine.events({ runId, afterSeq: all.length })), []);
    await assert.rejects(collect(engine.events({ runId: crypto.randomUUID() })), { code: "UNKNOWN_RUN" });
  });

  test("a call is given up by its signal", async (t) => {
    const engine = await joined(t, world.url, { world: "silent" });
    fake(engine, "town.get", () => null);
    await engine.nc.flush();
    const gone = new AbortController();
    const asked = engine.town("x", { signal: gone.signal });
    gone.abort("enough");
    await assert.rejects(asked, { code: "ABORTED" });
    await assert.rejects(engine.town("x", { signal: AbortSignal.abort() }), { code: "ABORTED" });
  });

  test("a handoff whose command waits for its game is told so, with its run, when its time is over", async (t) => {
    const engine = await joined(t, world.url, { world: "waits", callTimeout: 4000 });
    fake(engine, "handoff", (n) => n === 2 ? { error: [503, "EXECUTION_IN_PROGRESS", 100], runId: "the-run" } : null);
    await engine.nc.flush();
    const handoff = await talk(await joined(t, world.url), "It waits.");
    await assert.rejects(engine.send(handoff),
      { name: "ReplyError", code: "EXECUTION_IN_PROGRESS", status: 503, runId: "the-run" });
  });

  test("a handoff that waits is told why when its time is over, although its last attempt has no answer", async (t) => {
    const handoff = await talk(await joined(t, world.url), "It waits for long.");
    await Promise.all(["PLUGIN_ABSENT", "TOWN_PAUSED", "WORLD_PAUSED"].map(async (code) => {
      const engine = await joined(t, world.url, { world: code, callTimeout: 3000 });
      fake(engine, "handoff", (n) => n === 1 ? { error: [503, code, 10] } : null);
      await engine.nc.flush();
      await assert.rejects(engine.send(handoff), { name: "ReplyError", code });
    }));
  });

  test("a handoff whose game is away tells its caller, and gets the result when the game is back", async (t) => {
    const engine = await joined(t, world.url);
    const handoff = await talk(engine, "Who is there?");
    const first = await engine.send(handoff);
    const again = await engine.send(handoff);
    const away = await joined(t, world.url, { world: "away" });
    fake(away, "handoff", (n) => n === 1 ? { error: [503, "PLUGIN_ABSENT", 20], runId: first.runId } : { body: again.result });
    fake(away, "result.get", () => ({ body: first }));
    await away.nc.flush();
    /** @type {string[]} */
    const told = [];
    const { result, runId, duplicate } = await away.send(handoff, { onPaused: (why) => told.push(why.code) });
    assert.deepEqual(told, ["PLUGIN_ABSENT"]);
    assert.deepEqual({ result, runId, duplicate }, { ...first, duplicate: again.result });
  });

  test("429 and 503 are asked again as the server says, but not what it may have carried out", async (t) => {
    const engine = await joined(t, world.url, { world: "busy" });
    /** @type {[number, string, number][]} */
    const busy = [[429, "OVERLOADED", 1], [503, "CONTENDED", 1]];
    const asked = fake(engine, "town.get", (n) => busy[n - 1] ? { error: busy[n - 1] } : { body: { townId: "x" } });
    const put = fake(engine, "town.put", () => ({ error: [503, "LOG_UNAVAILABLE", 1] }));
    const list = fake(engine, "town.list", () => ({ error: [429, "OVERLOADED", 60_000] }));
    await engine.nc.flush();
    assert.deepEqual(await engine.town("x"), { townId: "x" });
    assert.equal(asked.length, 3);
    await assert.rejects(engine.request("town.put"), { code: "LOG_UNAVAILABLE" });
    assert.equal(put.length, 1);
    await assert.rejects(engine.request("town.list"), { code: "OVERLOADED" });
    assert.equal(list.length, 1, "its pause is longer than the call");
  });

  test("a request outlasts a server that ends with it, or says that it stops", async (t) => {
    for (const silent of [false, true]) {
      const engine = await joined(t, world.url, { world: `leaves-${silent}` });
      engine.nc.subscribe(`worldengine.v1.${engine.world}.town.get`, {
        max: 1,
        callback: (error, msg) => {
          if (error) throw error;
          if (!silent) respond(msg, { error: [503, "STOPPING", 1] });
          setTimeout(() => fake(engine, "town.get", () => ({ body: { townId: "x" } })), silent ? 2300 : 100);
        },
      });
      await engine.nc.flush();
      assert.deepEqual(await engine.town("x"), { townId: "x" });
    }
  });

  test("a handoff that is refused during the look for its game is repeated after the pause", async (t) => {
    const real = await joined(t, world.url), engine = await joined(t, world.url, { world: "looks", callTimeout: 10_000 });
    const handoff = await talk(real, "Look!"), { result } = await real.send(handoff);
    let refuse = (/** @type {import("./world.mjs").Answer} */ _) => {};
    let refused = 0, repeated = 0;
    fake(engine, "handoff", (n) => {
      if (n === 1) return new Promise((resolve) => { refuse = resolve; });
      repeated = performance.now();
      return { body: result };
    });
    fake(engine, "town.get", async (_, { townId }) => {
      refuse({ error: [503, "CONTENDED", 1500] });
      refused = performance.now();
      await engine.nc.flush();
      return { body: { townId } };
    });
    await engine.nc.flush();
    await engine.send(handoff);
    assert.ok(repeated - refused > 1400, `${repeated - refused}`);
  });

  test("what may have been carried out is not sent again, also where the clock is set back", async (t) => {
    const engine = await joined(t, world.url, { world: "once" });
    const asked = ["town.put", "town.patch", "run.cancel"].map((verb) => fake(engine, verb, () => null));
    await engine.nc.flush();
    const { now } = Date;
    t.mock.method(Date, "now", () => now() - (asked.some((bodies) => bodies.length) ? 60_000 : 0));
    await Promise.all(["town.put", "town.patch", "run.cancel"].map((verb) =>
      assert.rejects(engine.request(verb, {}, { timeout: 200 }), { code: "TIMEOUT" })));
    await engine.nc.flush();
    assert.deepEqual(asked.map((bodies) => bodies.length), [1, 1, 1]);
  });

  test("a lost answer is asked for again, and its duplicate is the first result", async (t) => {
    const engine = await joined(t, world.url);
    const lossy = await joined(t, world.url, { world: "lossy" });
    // The world lossy hands everything to the real one, and loses the first answer to a handoff.
    const handoffs = fake(lossy, "handoff", async (n, body) => {
      const outcome = await engine.send(body);
      return n === 1 ? null : { body: outcome.result, runId: outcome.runId };
    });
    fake(lossy, "result.get", async (_, body) => ({ body: await engine.request("result.get", body) }));
    await lossy.nc.flush();
    const { result, duplicate } = await lossy.send(await talk(engine, "Can you hear me?"));
    assert.equal(handoffs.length, 2);
    assert.deepEqual(handoffs[1], handoffs[0]);
    assert.equal(result.status, "executed");
    assert.equal(duplicate?.status, "duplicate");
    assert.equal(duplicate?.evaluation.duplicateCheck.duplicateOf, result.resultId);
  });

  test("a duplicate behind a 503 is the first result, since the handoff may have been stored", async (t) => {
    const engine = await joined(t, world.url);
    const held = await joined(t, world.url, { world: "held" });
    fake(held, "handoff", async (n, body) => {
      const outcome = await engine.send(body);
      return n === 1 ? { error: [503, "TOWN_PAUSED", 1] } : { body: outcome.result, runId: outcome.runId };
    });
    fake(held, "result.get", async (_, body) => ({ body: await engine.request("result.get", body) }));
    await held.nc.flush();
    const { result, duplicate } = await held.send(await talk(engine, "After the pause."));
    assert.equal(result.status, "executed");
    assert.equal(duplicate?.status, "duplicate");
  });

  test("a result comes in the revision that is asked for", async (t) => {
    const engine = await joined(t, world.url);
    const handoff = await talk(engine, "In another form.");
    const { result } = await engine.send(handoff, { revision: 1 });
    assert.ok(isRevision1(result));
    assert.equal(result.executionId, result.resultId);
    assert.deepEqual(result.authorityCommands, [handoff.command]);
    const [zero, one] = await Promise.all([0, 1].map((revision) =>
      engine.result(handoff.idempotencyKey, { revision: /** @type {0 | 1} */ (revision) })));
    assert.deepEqual(one.result, result);
    assert.ok(!isRevision1(zero.result));
    const again = await engine.send(handoff, { revision: 1 });
    assert.equal(again.result.evaluation.duplicateCheck.duplicateOf, result.resultId);

    const old = await joined(t, world.url, { world: "old" });
    fake(old, "handoff", () => ({ body: zero.result }));
    await old.nc.flush();
    await assert.rejects(old.send(handoff, { revision: 1 }), { code: "INVALID_ANSWER", message: /revision 1/ });
  });

  test("a result that is not its hash is not believed", async (t) => {
    const engine = await joined(t, world.url);
    const { result } = await engine.send(await talk(engine, "Honestly."));
    const liar = await joined(t, world.url, { world: "liar" });
    fake(liar, "handoff", () => ({ body: { ...result, reasonCode: "BECAUSE" } }));
    await liar.nc.flush();
    await assert.rejects(liar.send(await talk(engine, "Really?")), { code: "INVALID_ANSWER" });
  });
});

test("what takes a person's approval is listed, and decided", async (t) => {
  const asking = await serve(t, "--require-approval", "TOWNSFOLK_TALK");
  const engine = await joined(t, asking.url);
  const handoffs = [];
  for (const actorId of ["mayor-1", "mayor-2", "mayor-3"]) {
    const handoff = await makeHandoff(await engine.town("town-threatened"), {
      type: "TOWNSFOLK_TALK", actorId, args: { talkType: "casual" }, reason: "They are sad.",
    });
    handoffs.push(handoff);
    const { result } = await engine.send(handoff);
    assert.deepEqual([result.status, result.reasonCode], ["rejected", "APPROVAL_REQUIRED"]);
  }
  const ids = handoffs.map(({ handoffId }) => handoffId);
  const waiting = await collect(engine.approvals({ limit: 2 }));
  assert.deepEqual(waiting.map(({ handoffId, status }) => [handoffId, status]), ids.map((id) => [id, "waiting"]));
  assert.equal(waiting[0].proposal.proposalId, handoffs[0].proposalId);
  assert.equal(waiting[0].expected.length > 0, true);
  assert.deepEqual(await collect(engine.approvals({ townId: "nowhere" })), []);

  const townId = "town-threatened";
  const denied = await engine.decide(ids[0], "reject", { townId, reason: "Not today.", actorId: "ada" });
  assert.deepEqual([denied.townId, denied.decision, denied.actorId, denied.reason, denied.result],
    ["town-threatened", "reject", "ada", "Not today.", undefined]);
  assert.equal((await engine.send(handoffs[0])).result.reasonCode, "APPROVAL_DENIED");
  await assert.rejects(engine.decide(ids[0], "approve", { townId, reason: "Now.", actorId: "ben" }),
    { name: "ReplyError", code: "ALREADY_DECIDED", status: 409 });
  await assert.rejects(engine.decide(`handoff_${"0".repeat(64)}`, "approve", { townId, reason: "" }),
    { code: "UNKNOWN_APPROVAL", status: 404 });

  await engine.decide(ids[1], "approve", { townId, reason: "Fine.", actorId: "ada" });
  const [approved] = await collect(engine.approvals());
  assert.deepEqual([approved.status, approved.decidedBy, approved.reason], ["approved", "ada", "Fine."]);
  const { result, runId } = await engine.decide(ids[2], "approve", { townId, reason: "Go.", actorId: "ada", submit: true });
  assert.equal(result?.status, "executed");
  assert.deepEqual((await engine.send(handoffs[2])).result.status, "duplicate");
  const [first] = await collect(engine.runEvents(runId ?? ""), 1);
  assert.equal(first.eventType, "RunApproved");
  await assert.rejects(engine.decide(ids[1], "reject", { townId, reason: "Late." }), { code: "APPROVAL_STALE" });
  assert.deepEqual(await collect(engine.approvals()), []);
});

test("send waits for a person's decision, and returns its effect", async (t) => {
  const asking = await serve(t, "--require-approval", "TOWNSFOLK_TALK");
  const engine = await joined(t, asking.url), townId = "town-threatened";
  const make = async (actorId = "mayor-1") => makeHandoff(await engine.town(townId), {
    type: "TOWNSFOLK_TALK", actorId, args: { talkType: "casual" }, reason: "They are sad.",
  });
  const decisions = [{ submit: true }, {}, "reject"];
  for (const decision of decisions) {
    const handoff = await make();
    let asked = 0;
    const { result, runId } = await engine.send(handoff, { approvalWait: 60_000, onApproval: (waits) => {
      assert.equal(waits.reasonCode, "APPROVAL_REQUIRED");
      if (++asked > 1) return;
      const [verdict, more] = decision === "reject" ? ["reject", {}] : ["approve", decision];
      engine.decide(handoff.handoffId, /** @type {any} */ (verdict), { townId, reason: "", .../** @type {object} */ (more) });
    } });
    assert.equal(result.reasonCode, decision === "reject" ? "APPROVAL_DENIED" : "EXECUTED");
    assert.deepEqual([asked, runId.length > 0], [1, true]);
  }
  const late = await make("mayor-2");
  assert.equal((await engine.send(late, { approvalWait: 50 })).result.reasonCode, "APPROVAL_REQUIRED");
  await assert.rejects(engine.send(late, { approvalWait: 60_000, signal: AbortSignal.timeout(100) }), { code: "ABORTED" });
});

describe("a handoff that waits for a person's decision", () => {
  /** @param {import("node:test").TestContext} t @param {number} away how many requests from the second on find no server */
  async function waiting(t, away) {
    const asking = await serve(t, "--require-approval", "TOWNSFOLK_TALK");
    const real = await joined(t, asking.url), engine = await joined(t, asking.url, { world: "fake" });
    const handoff = await talk(real), townId = "town-threatened";
    const decided = { events: [{ eventType: "SignalAccepted", payload: { handoffId: handoff.handoffId } }] };
    fake(engine, "event.list", async (n) => {
      if (n === 2) await real.decide(handoff.handoffId, "approve", { townId, reason: "" });
      return n > 2 ? null : { body: { commits: n === 2 ? [decided] : [], cursor: String(n) } };
    });
    const sent = fake(engine, "handoff", async (n, body) => {
      if (n > 2 && n <= 2 + away) return { error: [503, "LOG_UNAVAILABLE"] };
      const { result, runId } = await real.send(body);
      return { body: result, runId };
    });
    await engine.nc.flush();
    return { engine, handoff, sent };
  }

  test("is sent again until it is answered, without a second decision", async (t) => {
    const { engine, handoff, sent } = await waiting(t, 2);
    let told = 0;
    const { result } = await engine.send(handoff, { approvalWait: 30_000, onApproval: () => told++ });
    assert.deepEqual([result.reasonCode, told, sent.length], ["EXECUTED", 1, 5]);
  });

  test("ends when the client is closed", async (t) => {
    const { engine, handoff } = await waiting(t, Infinity);
    let told = 0;
    await assert.rejects(engine.send(handoff, { approvalWait: 30_000, onApproval: () => {
      told++;
      engine.close();
    } }), { code: "CONNECTION" });
    assert.equal(told, 1);
  });
});

test("a handoff and its events survive the death of the server", async (t) => {
  const world = await serve(t);
  const engine = await joined(t, world.url);
  const until = new AbortController();
  const followed = collect(engine.events(
    { townId: "town-threatened", from: "2020-01-01T00:00:00Z", signal: until.signal }), 30);
  await engine.nc.flush();
  const first = await engine.send(await talk(engine, "One."));
  const second = await talk(engine, "Two.");
  await world.stop("SIGKILL");
  const sent = engine.send(second);
  await world.start();
  const outcome = await sent;
  assert.equal(outcome.result.status, "executed");
  const third = await engine.send(await talk(engine, "Three."));
  const events = await followed;
  const runs = [first, outcome, third].map(({ runId }) => runId);
  for (const runId of runs) {
    const own = events.filter((e) => e.runId === runId).map((e) => e.runSeq);
    assert.deepEqual(own, [1, 2, 3, 4, 5, 6, 7, 8, 9, 10], "no gap and no double");
  }
});
