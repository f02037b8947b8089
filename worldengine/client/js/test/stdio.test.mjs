import assert from "node:assert/strict";
import { spawn } from "node:child_process";
import { tmpdir } from "node:os";
import { test } from "node:test";
import { isRevision1, makeHandoff, verifyResult } from "../index.mjs";
import { access, joined, password, serve } from "./world.mjs";

const script = new URL("../worldengine-stdio.mjs", import.meta.url).pathname;

/**
 * Starts the script as the mineflayer bridge starts its engine: another directory, an environment of its
 * own, pipes. `results` are the lines that the bridge takes, `errors` the other lines that are JSON.
 * @param {{ after: (f: () => Promise<void>) => void }} t
 * @param {string} url
 * @param {Record<string, string>} [env]
 */
function bridge(t, url, env) {
  const child = spawn(process.execPath, [script], {
    cwd: tmpdir(), env: { PATH: process.env.PATH, NATS_URL: url, ...env }, stdio: ["pipe", "pipe", "pipe"],
  });
  t.after(async () => { child.kill("SIGKILL"); });
  const it = {
    child, results: /** @type {any[]} */ ([]), errors: /** @type {any[]} */ ([]), online: false, complaint: "",
    /** @param {unknown} line */
    write: (line) => child.stdin.write(`${typeof line === "string" ? line : JSON.stringify(line)}\n`),
    ended: new Promise((resolve) => { child.once("close", (code, signal) => resolve(code ?? signal)); }),
    until,
  };
  /** @type {() => void} */
  let changed = () => {};
  /** @param {() => boolean} condition */
  async function until(condition) {
    const late = Date.now() + 60_000;
    while (!condition()) {
      assert.ok(Date.now() < late, JSON.stringify([it.online, it.results.length, it.errors]));
      await new Promise((resolve) => {
        const timer = setTimeout(resolve, 100, null);
        changed = () => { clearTimeout(timer); resolve(null); };
      });
    }
  }
  child.stdout.setEncoding("utf8");
  child.stderr.on("data", (chunk) => { it.complaint += chunk; changed(); });
  let buffered = "";
  child.stdout.on("data", (chunk) => {
    buffered += chunk;
    const lines = buffered.split("\n");
    buffered = lines.pop() ?? "";
    for (const line of lines) {
      if (line.includes("--- WORLD ONLINE ---")) it.online = true;
      let value;
      try { value = JSON.parse(line); } catch { continue; }
      (value.type === "execution-result.v1" ? it.results : it.errors).push(value);
    }
    changed();
  });
  return it;
}

/** @param {import("../index.mjs").Client} engine @param {string} actorId @param {string} [townId] */
async function talk(engine, actorId, townId = "town-threatened") {
  return makeHandoff(await engine.town(townId),
    { type: "TOWNSFOLK_TALK", actorId, args: { talkType: "casual" }, reason: "They are sad." });
}

test("the mineflayer bridge starts it as its engine", async (t) => {
  const world = await serve(t);
  const engine = await joined(t, world.url);
  const it = bridge(t, world.url);
  await it.until(() => it.online);

  const handoff = await talk(engine, "mayor-1");
  it.write(handoff);
  await it.until(() => it.results.length === 1);
  const [result] = it.results;
  const scope = { townId: "town-threatened", factionId: null, chronicleLimit: 3, historyLimit: 4 };
  it.write({ type: "world-memory-request.v1", schemaVersion: 1, scope });
  it.write({ type: "world-memory-request.v1", schemaVersion: 1, scope: { ...scope, historyLimit: 6 } });
  await it.until(() => it.errors.length === 2);
  const memory = it.errors.find((line) => line.type === "world-memory-context.v1");
  assert.deepEqual(memory, await engine.memory("town-threatened"));
  assert.equal(memory.recentHistory[0].handoffId, handoff.handoffId);
  assert.match(it.errors.find((line) => line.type === "error").message, /\/scope\/historyLimit/);
  it.errors.length = 0;
  assert.ok(isRevision1(result));
  assert.equal(await verifyResult(result), null);
  assert.equal(result.handoffId, handoff.handoffId);
  assert.equal(result.status, "executed");
  assert.deepEqual(result.authorityCommands, [handoff.command]);

  it.write(handoff);
  await it.until(() => it.results.length === 2);
  assert.equal(it.results[1].evaluation.duplicateCheck.duplicateOf, result.executionId);

  for (const line of ["talk Ada hello", "god smite", "{", "7", { ...handoff, command: "op me" }]) it.write(line);
  await it.until(() => it.errors.length === 5);
  const codes = it.errors.map(({ type, code, message }) => (assert.equal(type, "error"), assert.ok(message), code));
  assert.deepEqual(codes.sort(),
    ["INVALID_JSON", "NOT_SERVED", "NOT_SERVED", "SCHEMA_VALIDATION_FAILED", "SCHEMA_VALIDATION_FAILED"]);
  const refused = it.errors.find(({ handoffId }) => handoffId === handoff.handoffId);
  assert.equal(refused.idempotencyKey, handoff.idempotencyKey);
  assert.equal(refused.message.split("/command").length, 2, `the text stands once: ${refused.message}`);
  for (const error of it.errors) if (error !== refused) assert.ok(!("handoffId" in error));

  it.write("exit");
  assert.equal(await it.ended, 0);
});

test("each handoff gets one line, whatever becomes of the server", async (t) => {
  const world = await serve(t);
  const engine = await joined(t, world.url);
  const { snapshot } = await engine.town("town-threatened");
  const towns = Array.from({ length: 8 }, (_, i) => `town-${i}`);
  for (const townId of towns) await engine.putTown({ ...snapshot, townId });
  const handoffs = await Promise.all(towns.map((townId) => talk(engine, "mayor-1", townId)));
  const it = bridge(t, world.url);
  await it.until(() => it.online);
  for (const handoff of handoffs.slice(0, 4)) it.write(handoff);
  await world.stop("SIGKILL");
  for (const handoff of handoffs.slice(4)) it.write(handoff);
  await world.start();
  await it.until(() => it.results.length >= handoffs.length);
  it.write("exit");
  assert.equal(await it.ended, 0);
  assert.deepEqual(it.errors, []);
  assert.deepEqual(it.results.map((r) => r.handoffId).sort(), handoffs.map((h) => h.handoffId).sort());
  for (const result of it.results) assert.equal(result.status, "executed", "a lost answer is not a duplicate");
});

test("it writes nothing before the world is online", async (t) => {
  const world = await serve(t);
  await world.stop("SIGKILL");
  const it = bridge(t, world.url);
  let first = "";
  it.child.stdout.once("data", (chunk) => { first = String(chunk); });
  for (const line of ["talk Ada hello", "{", "null"]) it.write(line);
  await it.until(() => it.complaint.includes("is handoffd started"));
  assert.equal(first, "");
  await world.start();
  await it.until(() => it.errors.length === 3);
  assert.match(first, /^--- WORLD ONLINE ---\n/);
});

test("it ends when it is told to, although no server is there, and says that it waits for one", async (t) => {
  const told = bridge(t, "127.0.0.1:1"), left = bridge(t, "127.0.0.1:1");
  await told.until(() => told.complaint.includes("is handoffd started"));
  told.write("exit");
  left.child.stdin.end();
  assert.deepEqual(await Promise.all([told.ended, left.ended]), [0, 0]);
});

test("it ends with a sentence and status 1 where it is not let in, or not any more", async (t) => {
  const { file, admit } = access(t);
  admit("mayor", "other");
  const world = await serve(t, "--access", file);
  const wrong = bridge(t, world.url, { NATS_USER: "mayor", NATS_PASSWORD: "another one" });
  assert.equal(await wrong.ended, 1);
  assert.match(wrong.complaint, /^worldengine-stdio: cannot connect to .*: it refuses the user.*\n$/);
  const piped = bridge(t, world.url, { NATS_USER: "mayor", NATS_PASSWORD: "another one" });
  piped.write({ handoffId: "of an input that has ended" });
  piped.child.stdin.end();
  assert.equal(await piped.ended, 1);
  assert.match(piped.complaint, /^worldengine-stdio: cannot connect to .*: it refuses the user.*\n$/);
  const it = bridge(t, world.url, { NATS_USER: "mayor", NATS_PASSWORD: password });
  await it.until(() => it.online);
  admit("other");
  world.signal("SIGHUP");
  assert.equal(await it.ended, 1);
  assert.match(it.complaint, /^worldengine-stdio: .*Authorization.*\n$/);
});

test("it ends with its input, and when what it was given is answered", async (t) => {
  const world = await serve(t);
  const engine = await joined(t, world.url);
  const it = bridge(t, world.url);
  it.write(await talk(engine, "mayor-1"));
  it.child.stdin.end();
  assert.equal(await it.ended, 0);
  assert.equal(it.results.length, 1);
});

test("a line ends at \\n alone, in every Node", async (t) => {
  const world = await serve(t);
  const engine = await joined(t, world.url);
  const it = bridge(t, world.url);
  await it.until(() => it.online);
  const town = await engine.town("town-threatened");
  const reason = "low\u2028wall\u2029gate\u0085end \ud83c\udff0";
  const handoff = await makeHandoff(town,
    { type: "TOWNSFOLK_TALK", actorId: "mayor-1", args: { talkType: "casual" }, reason });
  const bytes = Buffer.from(`${JSON.stringify(handoff)}\r\n`), half = bytes.indexOf("\u2028") + 1; // inside a character
  await new Promise((resolve) => { it.child.stdin.write(bytes.subarray(0, half), resolve); });
  it.child.stdin.write(bytes.subarray(half));
  await it.until(() => it.results.length === 1);
  assert.equal(it.results[0].status, "executed");
  assert.deepEqual(it.errors, []);
  it.child.stdin.end("exit"); // without \n
  assert.equal(await it.ended, 0);
});
