import assert from "node:assert/strict";
import { readFileSync } from "node:fs";
import { test } from "node:test";
import { Emitter, InvalidTransitionError } from "../index.mjs";
import { access, joined, password, serve } from "./world.mjs";

const run = {
  runId: "build-1", tenantId: "default", projectId: "main", environmentId: "local", planId: "plan", planVersion: "1",
};

test("a plugin's events are stored once, with one eventId, through a restart", async (t) => {
  const { file, admit } = access(t);
  admit({ name: "op", role: "operator" }, { name: "game", role: "plugin", towns: ["town-quiet"], read: ["town-quiet"] });
  const world = await serve(t, "--access", file);
  const engine = await joined(t, world.url, { user: "game", pass: password });
  const emitter = new Emitter(engine, { townId: "town-quiet", run });
  const told = [
    await emitter.emit("RunStarted"), ...await Promise.all(["a", "b"].map((stepId) => emitter.emit("StepStarted", { stepId }))),
    await emitter.emit("BlockPlaced", { stepId: "a", payload: { block: "stone" } }),
  ];
  assert.deepEqual(told.map(({ runSeq, idempotent }) => [runSeq, idempotent]), [[1, false], [2, false], [3, false], [4, false]]);
  assert.deepEqual(await emitter.emit("RunStarted"), { ...told[0], idempotent: true });

  const next = new Emitter(engine, { townId: "town-quiet", run }); // after a restart that forgot everything
  assert.deepEqual(await next.emit("RunStarted"), { ...told[0], idempotent: true });
  assert.deepEqual(await next.emit("StepStarted", { stepId: "a" }), { ...told[1], idempotent: true });
  await assert.rejects(next.emit("StepCompleted", { stepId: "b" }), InvalidTransitionError);
  const third = new Emitter(engine, { townId: "town-quiet", run });
  for await (const event of engine.runEvents(run.runId)) third.observe(event);
  assert.deepEqual(await third.emit("BlockPlaced", { stepId: "a" }), { ...told[3], idempotent: true });
  await third.emit("StepCompleted", { stepId: "b" });
  await third.emit("RunCompleted");
  const stored = await engine.run(run.runId);
  assert.equal(stored.status, "COMPLETED");
  assert.equal(stored.metadata?.consistency, "CONSISTENT");
  await assert.rejects(third.emit("StepFailed", { stepId: "a" }), (/** @type {any} */ error) => {
    assert.deepEqual(error.payload, { invalidTransitionDetected: true, expectedState: "RUNNING or PAUSED",
      actualState: "COMPLETED", attemptedEventType: "StepFailed" });
    return true;
  });
});

test("an event that was not answered is sent again with its eventId, and the returned one is kept", async () => {
  /** @type {any[]} */
  const sent = [];
  const answers = [new Error("no answer"), { eventId: "another", runSeq: 7, persistedAt: "now", idempotent: true }];
  const request = async (/** @type {string} */ verb, /** @type {any} */ { events: [event] }) => {
    sent.push(event);
    const answer = answers.shift();
    if (answer instanceof Error) throw answer;
    return { appended: [answer] };
  };
  const emitter = new Emitter(/** @type {any} */ ({ request }), { townId: "t", run });
  await assert.rejects(emitter.emit("RunStarted"), /no answer/);
  const appended = await emitter.emit("RunStarted");
  assert.equal(sent[0].eventId, sent[1].eventId);
  assert.match(sent[0].eventId, /^[0-9a-f]{8}-[0-9a-f]{4}-4[0-9a-f]{3}-[89ab][0-9a-f]{3}-[0-9a-f]{12}$/);
  assert.equal(appended.eventId, "another");
  assert.equal((await emitter.emit("RunStarted")).eventId, "another");
  assert.equal(sent.length, 2);
});

test("keys are those of the contract's vectors", async () => {
  const file = new URL("../../../../testdata/RunEvents.v2.0.1.idempotency_vectors.json", import.meta.url);
  for (const vector of JSON.parse(readFileSync(file, "utf8"))) {
    /** @type {string[]} */
    const keys = [];
    const request = async (/** @type {string} */ verb, /** @type {any} */ { events: [event] }) => {
      keys.push(event.idempotencyKey);
      return { appended: [{ eventId: event.eventId, runSeq: keys.length, persistedAt: "now" }] };
    };
    const { runId, planId, planVersion, stepId, eventType, logicalAttemptId: attempt } = vector;
    const emitter = new Emitter(/** @type {any} */ ({ request }), { townId: "t", run: { ...run, runId, planId, planVersion } });
    const observed = { runId, planId, emittedAt: "", eventId: "", runSeq: 1, persistedAt: "", stepId, logicalAttemptId: attempt };
    const before = stepId === undefined ? ["RunStarted", "RunPaused"] : ["StepStarted"];
    for (const earlier of eventType === "RunResumed" ? before : before.slice(0, 1)) {
      if (["RunQueued", "StepSkipped", earlier].includes(eventType)) break;
      emitter.observe({ ...observed, eventType: earlier, idempotencyKey: earlier });
    }
    await emitter.emit(eventType, { stepId, attempt });
    assert.deepEqual(keys, [vector.expectedSha256Hex], vector.name);
  }
});
