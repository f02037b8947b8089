import assert from "node:assert/strict";
import test from "node:test";
import { applySubject, parseCommand, townToken } from "../protocol.mjs";
import { command } from "./helpers.mjs";

test("a town id becomes the engine's token", () => {
  assert.equal(townToken("town-threatened"), "town-threatened");
  assert.equal(townToken("Town 1.*>"), "Town%201%2E%2A%3E");
  assert.equal(townToken("№"), "%E2%84%96");
  assert.equal(townToken("x".repeat(128)), "x".repeat(128));
  assert.equal(townToken("x".repeat(129)), "=0ec9eb33e74510bcdd1f2ea55206e82f21649c5c2becbf2b433eb475b34c01bd");
  assert.equal(applySubject("main", "a b"), "worldengine.v1.main.apply.a%20b");
});

test("what has no id cannot be answered", () => {
  for (const text of ["", "null", "7", "{}", '{"applyId":1}', '{"applyId":"handoff_x"}']) {
    assert.deepEqual(parseCommand(text), {}, text);
  }
});

test("a command is read, with members that are not known", () => {
  const { command: got, problem } = parseCommand(JSON.stringify(command(1, { more: 1 })));
  assert.equal(problem, undefined);
  assert.equal(got.args.projectId, "wall");
});

test("what is no command says why", () => {
  for (const change of [
    { schemaVersion: "command-apply.v2" }, { townId: "" }, { actorId: 1 }, { type: "STOP" }, { type: "toString" },
    { args: null }, { args: { projectId: "" } }, { timeoutMs: "1" }, { expectedSnapshot: undefined },
    { expectedSnapshot: { townId: "b", day: 1, projects: [] } },
  ]) {
    assert.equal(typeof parseCommand(JSON.stringify(command(1, change))).problem, "string", JSON.stringify(change));
  }
});
