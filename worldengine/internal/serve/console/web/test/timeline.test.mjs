import assert from "node:assert/strict";
import { test } from "node:test";
import { timelineOf } from "../src/timeline.js";

const base = Date.parse("2026-02-16T10:00:00Z");
const at = (ms) => new Date(base + ms).toISOString();
const apply = (n, from, to, status, code) => ({ stepId: "apply", logicalAttemptId: n, startedAt: at(from), completedAt: to && at(to), status, error: code && { code } });
const rows = (run, now = base) => timelineOf(run, now).rows.map(({ name, from, to }) => [name, from, to]);

test("a run that waited and was asked for twice", () => {
  const run = {
    status: "COMPLETED", arrivedAt: at(0), startedAt: at(1500), completedAt: at(9000), tookMs: 9002,
    steps: [{ stepId: "stale-check", startedAt: at(1500) }, apply(1, 1500, 4000, "FAILED", "TIMEOUT"), apply(2, 5000, 9000, "SUCCESS")],
  };
  assert.deepEqual(rows(run), [
    ["Arrived", 0, undefined], ["Waited", 0, 1500], ["Asked the game, attempt 1", 1500, 4000], ["Applied, attempt 2", 5000, 9000],
    ["Committed", 9000, undefined], ["Answer sent", 9002, undefined],
  ]);
  const { rows: [, , first, second], length, ticks } = timelineOf(run, base);
  assert.deepEqual([first.tone, first.why, second.tone], ["bad", "TIMEOUT", "good"]);
  assert.deepEqual([length, ticks], [9002, [0, 2000, 4000, 6000, 8000]]);
});

test("a run that goes on reaches until now", () => {
  assert.deepEqual(rows({ status: "PENDING", arrivedAt: at(0), steps: [] }, base + 700), [["Arrived", 0, undefined], ["Waited", 0, 700]]);
  const run = { status: "RUNNING", arrivedAt: at(0), startedAt: at(0), steps: [apply(1, 0, undefined, "RUNNING")] };
  assert.deepEqual(rows(run, base + 700), [["Arrived", 0, undefined], ["Being applied", 0, 700]]);
});

test("a run that was cancelled before it started", () => {
  assert.deepEqual(rows({ status: "CANCELLED", arrivedAt: at(0), completedAt: at(80), tookMs: 81 }),
    [["Arrived", 0, undefined], ["Waited", 0, 80], ["Cancelled", 80, undefined], ["Answer sent", 81, undefined]]);
});

test("a run of another producer has no arrival, and clocks that differ give no times before it", () => {
  assert.equal(timelineOf({ status: "RUNNING", steps: [] }, base), null);
  assert.deepEqual(rows({ status: "COMPLETED", arrivedAt: at(5), startedAt: at(0), completedAt: at(3) }), [["Arrived", 0, undefined], ["Committed", 0, undefined]]);
});

test("the scale has few parts, whatever the length", () => {
  for (const ms of [0, 1, 7, 130, 59_000, 3_700_000, 90_000_000, 4e9]) {
    const { ticks } = timelineOf({ status: "PENDING", arrivedAt: at(0) }, base + ms);
    assert.ok(ticks.length <= 7 && ticks[0] === 0, `${ms}: ${ticks}`);
  }
});
