import assert from "node:assert/strict";
import { readFileSync } from "node:fs";
import test from "node:test";
import { WALL, YARD, cleanText, plan, salvage, wall } from "../build.mjs";
import { command } from "./helpers.mjs";

const place = { x: 8, y: 5, z: 8 };
const at = ({ x, y, z }) => `${x},${y},${z}`;

test("a wall has a block for every percent, each at its own place, from the ground up", () => {
  for (let percent = 0; percent <= 100; percent++) assert.equal(wall(place, "w", percent / 100).length, percent);
  const full = wall(place, "w", 1);
  assert.equal(new Set(full.map(at)).size, WALL.length * WALL.height);
  assert.ok(full.every(({ y }, i) => i === 0 || y >= full[i - 1].y));
  assert.equal(full[0].y, place.y);
  assert.equal(wall(place, "w", 7).length, 100, "never more than all of it");
});

test("progress only adds to a wall", () => {
  const before = wall(place, "w", 0.6);
  assert.deepEqual(wall(place, "w", 0.7).slice(0, before.length), before);
});

test("a wall's place follows from its town and project alone, and is not in the yard", () => {
  assert.deepEqual(wall(place, "w", 1), wall({ ...place }, "w", 1));
  assert.notEqual(wall(place, "w", 1)[0].z, wall(place, "v", 1)[0].z);
  for (let i = 0; i < 200; i++) assert.ok(wall(place, `p${i}`, 0.01)[0].z > place.z);
});

// A player enters the game at x and z from 0 to 29 and looks to the south, and is sent 4 chunks around.
test("the first command of the README builds where a player at spawn looks, at the place that it names", () => {
  const blocks = wall(place, "wall-perimeter", 0.7);
  const bounds = (axis) => [Math.min(...blocks.map((b) => b[axis])), Math.max(...blocks.map((b) => b[axis]))];
  const [x, y, z] = [bounds("x"), bounds("y"), bounds("z")];
  assert.ok(z[0] > 29 && z[1] < 4 * 16, `z ${z}`);
  assert.ok(x[1] < 4 * 16, `x ${x}`);
  const readme = readFileSync(new URL("../README.md", import.meta.url), "utf8");
  assert.ok(readme.includes(`x ${x[0]} to ${x[1]}, y ${y[0]} to ${y[1]}, z ${z[0]}`), `x ${x} y ${y} z ${z}`);
});

test("every salvage shows another chest than the ones before", () => {
  for (let day = 0; day < 4 * YARD.length; day++) {
    const shown = new Map();
    for (let d = day; d < day + YARD.length; d++) {
      const chest = salvage(place, d);
      assert.notEqual(shown.get(at(chest)), chest.block);
      shown.set(at(chest), chest.block);
    }
  }
  assert.notEqual(salvage(place, 0).block, salvage(place, YARD.length).block);
});

test("every type has a plan", () => {
  const steps = (change) => plan(command(1, change), place).steps;
  assert.equal(steps({}).length, 10);
  assert.equal(steps({ type: "SALVAGE_PLAN", args: { focus: "general" } })[0].block, "chest");
  assert.deepEqual(steps({ type: "MAYOR_ACCEPT_MISSION", args: { missionId: "m-1" } }),
    [{ say: "[a] The mayor accepts a mission: m-1" }]);
  assert.deepEqual(steps({ type: "TOWNSFOLK_TALK", args: { talkType: "casual" } }),
    [{ say: "[a] ada: Nice weather today." }]);
});

test("the end of a mission is announced by its id", () => {
  const steps = (type) => plan(command(1, { type, args: { missionId: "m-1" } }), place).steps;
  assert.deepEqual(steps("MISSION_COMPLETE"), [{ say: "[a] The mission is complete: m-1" }]);
  assert.deepEqual(steps("MISSION_FAIL"), [{ say: "[a] The mission has failed: m-1" }]);
});

test("a mission is announced by its title", () => {
  const expectedSnapshot = { townId: "a", day: 1, projects: [], mission: { id: "m", title: "Scout §cnorth" } };
  const { steps } = plan(command(1, { type: "MAYOR_ACCEPT_MISSION", args: { missionId: "m" }, expectedSnapshot }), place);
  assert.deepEqual(steps, [{ say: "[a] The mayor accepts a mission: Scout cnorth" }]);
});

test("what the game does not know is refused", () => {
  assert.equal(plan(command(1, { args: { projectId: "x" } }), place).reasonCode, "UNKNOWN_PROJECT");
  for (const talkType of ["shout", "toString"]) {
    assert.equal(plan(command(1, { type: "TOWNSFOLK_TALK", args: { talkType } }), place).reasonCode, "UNKNOWN_TALK");
  }
  assert.equal(plan(command(1, { type: "STOP" }), place).reasonCode, "UNKNOWN_COMMAND");
});

test("text of agents is one short line without formatting", () => {
  assert.equal(cleanText("a\u0000b\u001b[31mc\u007f", 80), "ab[31mc");
  assert.equal(cleanText("§4§lred", 80), "4lred");
  assert.equal(cleanText(" a\r\n/stop\u2028\tb  ", 80), "a /stop b");
  assert.equal(cleanText("a\u202eb\u200bc\ufeffd\ue000e\ud800f", 80), "abcdef");
  assert.equal(cleanText("x".repeat(81), 80), `${"x".repeat(79)}…`);
  assert.equal([...cleanText("😀".repeat(81), 80)].length, 80);
  assert.equal(cleanText("Fort Ашера № 2", 80), "Fort Ашера № 2");
});
