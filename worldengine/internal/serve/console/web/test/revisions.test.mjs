import assert from "node:assert/strict";
import { test } from "node:test";
import { Revisions } from "../src/revisions.js";

/** A page of the revisions 3n, as town.history answers when newest is the last one. */
const page = (newest, { before = newest + 3, limit = 4 } = {}) => {
  const all = [];
  for (let revision = newest; revision > 0; revision -= 3) if (revision < before) all.push({ revision });
  return { revisions: all.slice(0, limit), ...(all.length > limit && { next: all[limit - 1].revision }) };
};
const of = (r) => r.list.map((x) => x.revision);

test("new revisions push none of those that are shown out", () => {
  const r = new Revisions();
  r.newest(page(30));
  r.older(r.next, page(30, { before: r.next }));
  r.newest(page(36));
  assert.deepEqual(of(r), [36, 33, 30, 27, 24, 21, 18, 15, 12, 9]);
  r.older(r.next, page(36, { before: r.next }));
  assert.deepEqual([of(r).slice(-2), r.next], [[6, 3], 0]);
});

test("after a long absence there is no hole", () => {
  const r = new Revisions();
  r.newest(page(30));
  r.newest(page(90));
  assert.deepEqual([of(r), r.next], [[90, 87, 84, 81], 81]);
});

test("an answer to an earlier question is not taken", () => {
  const r = new Revisions();
  r.newest(page(30));
  const before = r.next;
  r.newest(page(90));
  r.older(before, page(30, { before }));
  assert.deepEqual([of(r), r.next], [[90, 87, 84, 81], 81]);
});

test("what is kept is bounded", () => {
  const r = new Revisions();
  r.newest(page(9000, { limit: 2500 }));
  assert.deepEqual([r.list.length, r.next], [500, r.list.at(-1).revision]);
});
