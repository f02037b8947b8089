import assert from "node:assert/strict";
import test from "node:test";
import { setImmediate } from "node:timers/promises";
import { Applier } from "../applier.mjs";
import { applied } from "../protocol.mjs";
import { command, idOf, remember, temporaryFile } from "./helpers.mjs";

// A game whose ticks the test gives: what stands in it, and every change in order.
class Game {
  stands = new Set();
  changes = [];
  async missing(steps) { return steps.filter((step) => !this.stands.has(JSON.stringify(step))); }
  async perform(step) {
    if (this.broken) throw new Error("broken");
    this.changes.push(step);
    this.stands.add(JSON.stringify(step));
  }
}

const talk = (n, change) => command(n, { type: "TOWNSFOLK_TALK", args: { talkType: "casual" }, ...change });

async function start(t, { limits = {}, allow, game = new Game(), path = temporaryFile(t) } = {}) {
  const clock = { now: 0 };
  const config = {
    towns: { a: { x: 0, y: 5, z: 0 }, b: { x: 50, y: 5, z: 0 } },
    allow: allow ?? ["PROJECT_ADVANCE", "TOWNSFOLK_TALK"],
    limits: { queue: 10, commandsPerTick: 4, blocksPerTick: 32, remember: 100, ...limits },
  };
  const memory = await remember(t, path, config.limits.remember);
  const logged = [];
  const applier = new Applier({ memory, world: game, config, now: () => clock.now, log: (line) => logged.push(line) });
  const answers = [];
  const offer = (c) => applier.offer(JSON.stringify(c), (answer) => answers.push(answer));
  // until gives ticks until done holds; the disk takes its time, so it polls, with a deadline.
  const until = async (done) => {
    for (const end = Date.now() + 5000; !done();) {
      assert.ok(Date.now() < end, "too late");
      applier.tick();
      await setImmediate();
    }
  };
  const answered = (n) => until(() => answers.length >= n);
  const statuses = () => answers.map(({ applyId, status }) => `${Number(applyId.slice(-3))} ${status}`);
  return { applier, answers, answered, clock, game, logged, memory, offer, path, statuses, until };
}

test("a command changes the world on a tick, and is answered after it is recorded", async (t) => {
  const s = await start(t);
  s.offer(command(1));
  while (!s.memory.get(idOf(1))) await setImmediate();
  for (let i = 0; i < 10; i++) await setImmediate();
  assert.deepEqual([s.game.changes.length, s.answers.length], [0, 0], "no tick yet");
  await s.answered(1);
  assert.equal(s.game.changes.length, 10);
  assert.deepEqual(s.answers, [applied(idOf(1))]);
  assert.deepEqual(s.memory.get(idOf(1)), { answer: applied(idOf(1)) });
});

test("each outcome is logged, with the words of agents on one line", async (t) => {
  const s = await start(t, { allow: ["PROJECT_ADVANCE"] });
  s.offer(command(1, { args: { projectId: "w\n§4all" } }));
  s.offer(talk(2));
  await s.answered(2);
  assert.deepEqual(s.logged, [
    `refused UNKNOWN_PROJECT: PROJECT_ADVANCE w 4all in a, ${idOf(1)}`,
    `refused NOT_ALLOWED: TOWNSFOLK_TALK casual in a, ${idOf(2)}`,
  ]);
  s.offer(command(3));
  await s.answered(3);
  assert.match(s.logged[2], new RegExp(`^applied: PROJECT_ADVANCE .* in a, ${idOf(3)}$`));
});

test("an id is applied once, after a restart too", async (t) => {
  const s = await start(t);
  s.offer(talk(1));
  await s.answered(1);
  s.offer(talk(1));
  assert.deepEqual(s.statuses(), ["1 applied", "1 applied"]);
  const after = await start(t, { path: s.path, game: s.game });
  after.offer(talk(1));
  assert.deepEqual(after.statuses(), ["1 applied"]);
  assert.equal(s.game.changes.length, 1);
});

test("what was begun before a restart is completed, late or not", async (t) => {
  const s = await start(t);
  await s.memory.begin(idOf(1));
  const [first] = await (async () => {
    const before = await start(t);
    before.offer(command(1));
    await before.answered(1);
    return before.game.changes;
  })();
  await s.game.perform(first);
  const after = await start(t, { path: s.path, game: s.game });
  after.offer(command(1, { timeoutMs: 0 }));
  await after.answered(1);
  assert.deepEqual(after.statuses(), ["1 applied"]);
  assert.equal(s.game.changes.length, 10, "nine were missing");
});

test("a town's commands go in order, one after another; towns don't wait for each other", async (t) => {
  const s = await start(t);
  for (let n = 1; n <= 5; n++) s.offer(talk(n, { actorId: `a${n}` }));
  s.offer(talk(6, { townId: "b", actorId: "b6" }));
  await s.answered(6);
  const says = s.game.changes.map(({ say }) => say);
  assert.deepEqual(says.filter((say) => say.startsWith("[a]")).map((say) => say.slice(4, 6)), ["a1", "a2", "a3", "a4", "a5"]);
  assert.ok(says.indexOf(says.find((say) => say.startsWith("[b]"))) < 2);
});

test("a tick takes no more commands and blocks than the limits say", async (t) => {
  const s = await start(t, { limits: { commandsPerTick: 1, blocksPerTick: 3 } });
  s.offer(command(1));
  s.offer(talk(2, { townId: "b" }));
  let most = 0;
  while (s.answers.length < 2) {
    const before = s.game.changes.length;
    s.applier.tick();
    most = Math.max(most, s.game.changes.length - before);
    await setImmediate();
  }
  assert.equal(most, 3);
  assert.equal(s.game.changes.length, 11);
});

test("a full queue answers busy, and takes nothing", async (t) => {
  const s = await start(t, { limits: { queue: 2 } });
  for (let n = 1; n <= 3; n++) s.offer(talk(n));
  assert.deepEqual(s.statuses(), ["3 busy"]);
  assert.ok(s.answers[0].retryAfterMs > 0);
  await s.answered(3);
  s.offer(talk(3));
  await s.answered(4);
  assert.deepEqual(s.statuses(), ["3 busy", "1 applied", "2 applied", "3 applied"]);
});

test("what is being worked on answers in-progress", async (t) => {
  const s = await start(t);
  s.offer(talk(1));
  s.offer(talk(1));
  assert.deepEqual(s.statuses(), ["1 in-progress"]);
  await s.answered(2);
  assert.deepEqual(s.statuses(), ["1 in-progress", "1 applied"]);
  assert.equal(s.game.changes.length, 1);
});

test("what waits and is asked again goes by the later request", async (t) => {
  const s = await start(t);
  s.offer(talk(1));
  s.offer(talk(2, { timeoutMs: 100 }));
  s.offer(talk(2, { timeoutMs: 300 }));
  assert.deepEqual(s.statuses(), ["2 busy"]);
  s.clock.now = 200;
  await s.answered(3);
  assert.deepEqual(s.statuses(), ["2 busy", "1 applied", "2 applied"]);
});

test("what is late before it begins is refused, and may come again", async (t) => {
  const s = await start(t);
  s.offer(talk(1));
  s.offer(talk(2, { timeoutMs: 100 }));
  s.clock.now = 100;
  await s.answered(2);
  assert.equal(s.answers[1].reasonCode, "DEADLINE_PASSED");
  assert.equal(s.answers[1].retryable, true);
  s.offer(talk(2));
  await s.answered(3);
  assert.deepEqual(s.statuses(), ["1 applied", "2 refused", "2 applied"]);
});

test("what is not allowed or not known is refused for ever", async (t) => {
  const s = await start(t, { allow: ["TOWNSFOLK_TALK"] });
  s.offer(command(1));
  s.offer(talk(2, { townId: "c" }));
  s.offer(talk(3, { townId: "constructor" }));
  await s.answered(3);
  assert.deepEqual(s.answers.map((a) => a.reasonCode), ["NOT_ALLOWED", "UNKNOWN_TOWN", "UNKNOWN_TOWN"]);
  assert.equal(s.answers[0].retryable, false);
  const after = await start(t, { path: s.path });
  after.offer(command(1));
  assert.equal(after.answers[0].reasonCode, "NOT_ALLOWED");
});

test("what is no command is refused where it has an id, and counted where not", async (t) => {
  const s = await start(t);
  s.offer({ applyId: idOf(1) });
  s.offer({});
  assert.deepEqual(s.answers.map((a) => a.reasonCode), ["INVALID_COMMAND"]);
  assert.equal(s.applier.counts.unreadable, 1);
});

test("a world that fails is told, and the command completed in another attempt", async (t) => {
  const s = await start(t);
  s.game.broken = true;
  s.offer(command(1));
  await s.answered(1);
  assert.equal(s.answers[0].reasonCode, "WORLD_ERROR");
  assert.equal(s.answers[0].retryable, true);
  s.game.broken = false;
  s.offer(command(1));
  await s.answered(2);
  assert.equal(s.answers[1].status, "applied");
  assert.equal(s.game.changes.length, 10);
});

test("without a disk nothing is begun, and nothing unrecorded is called done", async (t) => {
  const s = await start(t);
  const { begin, end } = s.memory;
  s.memory.begin = async () => { throw new Error("full"); };
  s.offer(talk(1));
  await s.answered(1);
  assert.deepEqual([s.statuses(), s.game.changes.length], [["1 busy"], 0]);
  s.memory.begin = begin;
  s.memory.end = async () => { throw new Error("full"); };
  s.offer(command(2));
  await s.answered(2);
  assert.deepEqual(s.statuses(), ["1 busy", "2 in-progress"]);
  s.memory.end = end;
  s.offer(command(2));
  await s.answered(3);
  assert.equal(s.answers[2].status, "applied");
  assert.equal(s.game.changes.length, 10, "it stood already");
});
