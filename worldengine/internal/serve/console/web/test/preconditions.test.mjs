import assert from "node:assert/strict";
import test from "node:test";
import { beside, compared } from "../src/preconditions.js";

const town = {
  townId: "t", mission: null, sideQuests: [{ id: "q" }], projects: [{ id: "wall", status: "active" }],
  pressure: { threat: 0.82, scarcity: 0.35, hope: 0.41, dread: 0.55 },
};
const row = (kind, what, expected, actual, holds) => ({ kind, what, expected, actual, holds });

test("each kind says what it expects, and what the town has", () => {
  const preconditions = [
    { kind: "mission_absent" }, { kind: "mission_active", targetId: "m" }, { kind: "side_quest_exists", targetId: "q" },
    { kind: "project_exists", targetId: "moat" }, { kind: "project_status", targetId: "wall", expected: "blocked" },
    { kind: "pressure_at_least", field: "threat", expected: 0.9 }, { kind: "pressure_at_most", field: "dread", expected: 0.6 },
    { kind: "salvage_focus_supported", expected: "gold" }, { kind: "talk_type_supported", expected: "casual" },
    { kind: "town_exists" }, { kind: "of_an_agent", targetId: "x" },
  ];
  const failures = [
    { kind: "mission_active", detail: "No mission is active" }, { kind: "project_exists", detail: "Missing project: moat" },
    { kind: "project_status", detail: "Project wall is active, expected blocked" },
    { kind: "pressure_at_least", detail: "Pressure threat is 0.82, expected at least 0.9" },
    { kind: "salvage_focus_supported", detail: "Unsupported salvage focus: gold" },
    { kind: "of_an_agent", detail: "Unsupported precondition kind" },
  ];
  assert.deepEqual(compared(preconditions, town, failures), [
    row("mission_absent", "mission", "none", "none", true),
    row("mission_active", "mission", "m", "none", false),
    row("side_quest_exists", "side quest q", "exists", "exists", true),
    row("project_exists", "project moat", "exists", "missing", false),
    row("project_status", "status of project wall", "blocked", "active", false),
    row("pressure_at_least", "threat", "at least 0.9", "0.82", false),
    row("pressure_at_most", "dread", "at most 0.6", "0.55", true),
    row("salvage_focus_supported", "salvage focus gold", "known", "unknown", false),
    row("talk_type_supported", "talk type casual", "known", "known", true),
    row("town_exists", "town", "t", "t", true),
    row("of_an_agent", "x", "(none given)", "not known here", false),
  ]);
});

test("of several of one kind, those hold that no failure names", () => {
  const of = (...ids) => ids.map((targetId) => ({ kind: "project_exists", targetId }));
  const missing = (...ids) => ids.map((id) => ({ kind: "project_exists", detail: `Missing project: ${id}` }));
  const holds = (preconditions, failures) => compared(preconditions, town, failures).map((r) => r.holds);
  assert.deepEqual(holds(of("wall", "moat"), missing("moat")), [true, false]);
  assert.deepEqual(holds(of("moat", "wall", "gate"), missing("moat", "gate")), [false, true, false]);
  assert.deepEqual(holds(of("moat", "gate"), missing("moat", "gate")), [false, false]);
  assert.deepEqual(holds(of("wall", "wall-2"), missing("wall-2")), [true, false]);
  assert.deepEqual(holds([{ kind: "project_exists" }, ...of("wall")], missing("(none given)")), [false, true]);
});

test("a failure that no precondition has is told beside them", () => {
  const approval = { kind: "approval", detail: "It takes a person's approval." };
  assert.deepEqual(beside([{ kind: "mission_absent" }], [approval]), [approval]);
  assert.deepEqual(beside([{ kind: "mission_absent" }], [{ kind: "mission_absent", detail: "" }]), []);
});
