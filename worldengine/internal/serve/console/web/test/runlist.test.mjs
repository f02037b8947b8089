import assert from "node:assert/strict";
import { test } from "node:test";
import { RunList, mostRows } from "../src/runlist.js";

let clock = 0;
const at = () => new Date(1_700_000_000_000 + clock++).toISOString();
const event = (runId, runSeq, eventType, payload, townId = "oak") => ({ runId, runSeq, eventType, payload, townId, persistedAt: at() });
const run = (runId, more) => ({ runId, status: "COMPLETED", lastEventSeq: 9, townId: "oak", metadata: {}, startedAt: at(), completedAt: at(), ...more });
const started = { townId: "oak", actorId: "mayor", type: "SALVAGE_PLAN", command: "salvage plan oak dread" };

/** A server that answers with the pages that the test gives it, the last one again and again. */
const serving = (...pages) => async () => (pages.length > 1 ? pages.shift() : pages[0]);
const ids = (list) => list.shown.map((row) => row.runId);

test("a run that waits is in the list before it starts", async () => {
  const list = new RunList({}, serving({ runs: [] }));
  await list.load();
  list.take(event("told", 1, "RunQueued", started));
  list.take(event("untold", 1, "RunQueued", undefined, "b c"));
  list.take(event("bare", 1, "RunStarted"));
  assert.equal(list.newer, 3);
  list.release();
  assert.deepEqual(list.rows.map((r) => [r.runId, r.townId, r.status, r.command]), [
    ["bare", "oak", "RUNNING", undefined], ["untold", "b c", "PENDING", undefined], ["told", "oak", "PENDING", started.command],
  ]);
  list.take(event("told", 2, "RunStarted", started));
  assert.equal(list.rows[2].status, "RUNNING");
});

test("an event of an old run that is further down is no new run", async () => {
  const list = new RunList({}, serving({ runs: [run("a")], next: 7 }));
  await list.load();
  list.take(event("old", 2, "RunStarted", started));
  assert.equal(list.newer, 0);
});

test("a run from before the list is no new run, however late its events come", async () => {
  const late = event("late", 1, "RunStarted", started);
  const list = new RunList({}, serving({ runs: [run("b"), run("a")].reverse(), next: 7 }));
  await list.load();
  list.take(late);
  assert.equal(list.newer, 0);
  list.take(event("new", 1, "RunStarted", started));
  assert.equal(list.newer, 1);
});

test("what does not pass the filter is not counted and not kept", async () => {
  const list = new RunList({ townId: "oak", status: "executed" }, serving({ runs: [] }));
  await list.load();
  list.take(event("elsewhere", 1, "RunStarted", { ...started, townId: "elm" }, "elm"));
  list.take(event("a", 1, "RunStarted", started));
  list.take(event("b", 1, "RunStarted", started));
  assert.equal(list.newer, 0, "none of them is executed yet");
  list.take(event("a", 2, "RunCompleted", { status: "executed" }));
  list.take(event("b", 2, "RunCompleted", { status: "rejected" }));
  assert.equal(list.newer, 1);
  list.release();
  assert.deepEqual(ids(list), ["a"]);
  assert.equal(list.rows.length, 1);
});

test("what waits is bounded, counted, and asked for when it is wanted", async () => {
  const list = new RunList({}, serving({ runs: [run("first")] }, { runs: [run("z"), run("y")], next: 3 }));
  await list.load();
  const came = 3 * mostRows;
  for (let i = 0; i < came; i++) list.take(event(`run-${i}`, 1, "RunStarted", started));
  assert.equal(list.newer, came);
  assert.equal(list.held.size, mostRows);
  assert.equal(list.release(), true);
  await list.load();
  assert.deepEqual([ids(list), list.newer, list.next], [["z", "y"], 0, 3]);
});

test("what comes before the first answer is bounded, and the list asked for again", async () => {
  let answer;
  const pages = [new Promise((resolve) => { answer = resolve; }), { runs: [run("later"), run("a")] }];
  const list = new RunList({}, () => pages.shift());
  const loading = list.load();
  for (let i = 0; i < 10_000; i++) list.take(event("a", i + 2, "Told"));
  assert.ok(list.early.length <= 2000);
  answer({ runs: [run("a", { lastEventSeq: 1 })] });
  await loading;
  assert.equal(pages.length, 0);
  list.release();
  assert.deepEqual(ids(list), ["later", "a"]);
});

test("runs that were missed come to their places", async () => {
  const list = new RunList({}, serving({ runs: [run("d"), run("b"), run("a")] }, { runs: [run("e"), run("d"), run("c"), run("b")] }));
  await list.load();
  list.take(event("f", 1, "RunStarted", started));
  await list.load();
  list.release();
  assert.deepEqual(ids(list), ["f", "e", "d", "c", "b", "a"]);
});

test("of the runs that wait, none stands above a page that is all newer", async () => {
  const page = (name) => ({ runs: Array.from({ length: 50 }, (_, i) => run(`${name}${i + 1}`)).reverse(), next: 9 });
  const pages = [{ runs: [run("a")] }];
  const list = new RunList({}, async () => pages.shift());
  await list.load();
  for (let i = 1; i <= 60; i++) list.take(event(`h${i}`, 1, "RunStarted", started));
  pages.push(page("n"));
  list.take(event("later", 1, "RunStarted", started));
  await list.load();
  const newest = Array.from({ length: 50 }, (_, i) => `n${50 - i}`);
  assert.deepEqual([ids(list), list.newer, list.next], [newest, 1, 9]);
  list.take(event("last", 1, "RunStarted", started));
  list.release();
  assert.deepEqual(ids(list), ["last", "later", ...newest]);
});

test("a run that began after the page was made stays above it", async () => {
  const pages = [{ runs: [run("a")] }, { runs: [run("x"), run("y")].reverse() }];
  const list = new RunList({}, async () => pages.shift());
  await list.load();
  list.take(event("above", 1, "RunStarted", started));
  await list.load();
  list.release();
  assert.deepEqual(ids(list), ["above", "y", "x"]);
});

test("a run that a producer began is neither a signal nor a handoff, whatever it claims", async () => {
  const outcome = { status: "executed", reasonCode: "EXECUTED" };
  const claims = { ...started, signal: "APPROVE", runId: "theirs" };
  const listed = run("listed", { command: "c", metadata: { started: claims, outcome, appendedBy: "miner" } });
  const list = new RunList({}, serving({ runs: [listed] }));
  await list.load();
  list.take({ ...event("live", 1, "RunStarted", claims), appendedBy: "miner" });
  list.take({ ...event("live", 2, "RunCompleted", outcome), appendedBy: "miner" });
  list.release();
  assert.deepEqual(list.rows.map((r) => [r.runId, r.status, r.by, Boolean(r.type || r.about || r.result || r.reason)]), [
    ["live", "COMPLETED", "miner", false], ["listed", "COMPLETED", "miner", false],
  ]);
});
