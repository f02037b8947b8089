import assert from "node:assert/strict";
import { appendFileSync, readFileSync, rmSync, writeFileSync } from "node:fs";
import { dirname } from "node:path";
import test from "node:test";
import { applied, refused } from "../protocol.mjs";
import { idOf, remember, temporaryFile } from "./helpers.mjs";

const lines = (path) => readFileSync(path, "utf8").split("\n").length - 1;

test("what was begun and ended is known after a restart", async (t) => {
  const path = temporaryFile(t);
  const before = await remember(t, path, 10);
  await before.begin(idOf(1));
  await before.end(idOf(1), applied(idOf(1)));
  await before.end(idOf(2), refused(idOf(2), "NO", "No."));
  await before.begin(idOf(3));
  // No close: the process was killed.
  const after = await remember(t, path, 10);
  assert.deepEqual(after.get(idOf(1)), { answer: applied(idOf(1)) });
  assert.deepEqual(after.get(idOf(2)), { answer: refused(idOf(2), "NO", "No.") });
  assert.deepEqual(after.get(idOf(3)), {});
  assert.equal(after.get(idOf(4)), undefined);
  assert.equal(after.unfinished, 1);
});

test("a torn last line is forgotten, and does not spoil what follows", async (t) => {
  const path = temporaryFile(t);
  const before = await remember(t, path, 10);
  await before.end(idOf(1), applied(idOf(1)));
  for (const torn of [`{"end":"${idOf(2)}`, `{"begin":"${idOf(2)}"}`]) {
    appendFileSync(path, torn);
    const after = await remember(t, path, 10);
    assert.equal(after.get(idOf(2)), undefined);
    await after.begin(idOf(3));
    await after.close();
    assert.deepEqual((await remember(t, path, 10)).get(idOf(3)), {});
  }
});

test("a bad line elsewhere is an error that names it", async (t) => {
  const path = temporaryFile(t);
  await (await remember(t, path, 10)).close();
  for (const bad of ["{", "{}", "null", '{"begin":7}']) {
    writeFileSync(path, `{"begin":"${idOf(1)}"}\n${bad}\n{"begin":"${idOf(2)}"}\n`);
    await assert.rejects(remember(t, path, 10), /applied\.jsonl:2 is no record/, bad);
  }
});

test("it is bounded, in memory and on the disk", async (t) => {
  const path = temporaryFile(t);
  const memory = await remember(t, path, 10);
  for (let i = 0; i < 100; i++) await memory.end(idOf(i), applied(idOf(i)));
  assert.equal(memory.size, 10);
  assert.equal(memory.get(idOf(89)), undefined);
  assert.ok(memory.get(idOf(90)));
  assert.ok(lines(path) <= 51);
  assert.equal((await remember(t, path, 10)).size, 10);
  assert.equal(lines(path), 10);
});

test("records that come together are written together, in order", async (t) => {
  const path = temporaryFile(t);
  const memory = await remember(t, path, 1000);
  await Promise.all(Array.from({ length: 200 }, (_, i) => memory.begin(idOf(i))));
  const ids = readFileSync(path, "utf8").trim().split("\n").map((line) => JSON.parse(line).begin);
  assert.deepEqual(ids, Array.from({ length: 200 }, (_, i) => idOf(i)));
});

test("a disk that fails is told, and nothing that was told is lost when it is back", async (t) => {
  const path = temporaryFile(t);
  const memory = await remember(t, path, 10);
  await memory.begin(idOf(1));
  await memory.close(); // so that the next write starts a new file
  rmSync(dirname(path), { recursive: true });
  await assert.rejects(memory.begin(idOf(2)));
  assert.equal(memory.get(idOf(2)), undefined);
  const other = await remember(t, path, 10); // makes the directory
  await memory.begin(idOf(3));
  const after = await remember(t, path, 10);
  assert.deepEqual([1, 2, 3].map((n) => after.get(idOf(n))), [{}, undefined, {}]);
  await other.close();
});
