import assert from "node:assert/strict";
import { test } from "node:test";
import { causesOf } from "../src/causes.js";

const calm = { paused: 0, applying: 0, noPlugin: 0, waiting: 0, inDoubt: 0 };
const status = (more) => ({ problems: [], pluginsAbsent: [], townsPaused: [], townStates: calm, alerts: { newest: [] }, approvals: { count: 0 }, ...more });
const kinds = (s) => causesOf(s).map((c) => c.kind);

test("a calm world has no cause, nor a status that is not there", () => {
  assert.deepEqual(causesOf(status()), []);
  assert.deepEqual(causesOf(null), []);
});

test("towns without a plugin are one cause, which neither a problem nor an alert repeats", () => {
  const absent = ["b", "a"].map((townId, i) => ({ townId, since: `2026-02-16T10:00:0${i}Z` }));
  for (const problem of ["2 towns have no plugin, the first since 2026-02-16T10:00:00Z: a, b", "the town a\nb has had no plugin since 2026"]) {
    const [cause, ...others] = causesOf(status({
      problems: [problem], pluginsAbsent: absent, townStates: { ...calm, noPlugin: 2 },
      alerts: { newest: [{ id: "1", code: "PLUGIN_ABSENT", severity: "P2" }] },
    }));
    assert.deepEqual(others, []);
    assert.deepEqual([cause.count, cause.since, cause.grave], [2, absent[0].since, true]);
  }
});

test("an urgent alert is said once, as the alert, and one that is not among the newest as the problem", () => {
  const newest = [{ id: "1", code: "APPLY_IN_DOUBT", severity: "P1" }, { id: "2", code: "PLUGIN_LATE_ANSWER", severity: "P2" }];
  const problems = ["alert 7, APPLY_IN_DOUBT of 2026-02-16T10:00:00Z: look", "alert 8, LOG_LOST of 2026-02-16T10:00:00Z: lost"];
  const causes = causesOf(status({ problems, alerts: { newest }, townStates: { ...calm, inDoubt: 1 } }));
  assert.deepEqual(causes.map((c) => [c.kind, c.grave ?? false]), [["problem", true], ["alert", true], ["alert", false]]);
});

test("the gravest come first", () => {
  assert.deepEqual(kinds(status({
    problems: ["the disk is full"], townStates: { ...calm, inDoubt: 1, paused: 1 }, approvals: { count: 1 },
    alerts: { newest: [{ id: "1", code: "PLUGIN_RETURNED", severity: "P3" }] },
  })), ["problem", "inDoubt", "paused", "approvals", "alert"]);
});
