import assert from "node:assert/strict";
import { test } from "node:test";
import { inAddress, inRequest, rangeOf, samplesFor, wholeMinutes, within } from "../src/range.js";

const query = (text) => new URLSearchParams(text);
const at = (text) => Date.parse(`2026-02-16T${text}Z`);

test("a range goes into an address and comes out of it, with seconds where it has some", () => {
  for (const range of [{ from: at("10:00"), to: at("10:15") }, { from: at("10:00:07"), to: undefined }, { from: undefined, to: at("10:00:00.250") }]) {
    assert.deepEqual(rangeOf(new URLSearchParams(inAddress(range))), range);
  }
  assert.equal(inAddress({ from: at("10:00") }).from, "2026-02-16T10:00Z");
  assert.deepEqual(inAddress(), { from: "", to: "" });
});

test("an address typed by hand is read as far as it is one", () => {
  assert.deepEqual(rangeOf(query("from=yesterday")), { from: undefined, to: undefined });
  assert.deepEqual(rangeOf(query("from=2026-02-16T10:00Z&to=2026-02-16T09:00Z")), { from: at("10:00"), to: undefined });
});

test("a request has seconds, as run.list reads them", () => {
  assert.deepEqual(inRequest({ from: at("10:00") }), { from: "2026-02-16T10:00:00.000Z", to: undefined });
});

test("samples are asked for as far back as the range, within the bounds of world.samples", () => {
  assert.deepEqual(samplesFor({}, "day", at("12:00")), { minutes: 1440, points: 96 });
  assert.deepEqual(samplesFor({}, "year", at("12:00")), { minutes: 60, points: 60 });
  assert.deepEqual(samplesFor({ from: at("11:30") }, "hour", at("12:00")), { minutes: 30, points: 30 });
  assert.deepEqual(samplesFor({ from: at("00:00") }, "hour", at("12:00")), { minutes: 720, points: 240 });
  assert.deepEqual(samplesFor({ from: 0 }, "hour", at("12:00")), { minutes: 1440, points: 240 });
  assert.deepEqual(samplesFor({ from: at("13:00") }, "hour", at("12:00")), { minutes: 1, points: 1 });
});

test("the samples of a range are those that overlap it", () => {
  const samples = ["10:00", "10:01", "10:02"].map((text) => ({ at: new Date(at(text)).toISOString() }));
  const places = (range) => within(samples, 60_000, range).map((s) => samples.indexOf(s));
  assert.deepEqual(places({}), [0, 1, 2]);
  assert.deepEqual(places({ from: at("10:01") }), [1, 2]);
  assert.deepEqual(places({ from: at("10:00:30"), to: at("10:01") }), [0]);
  assert.deepEqual(wholeMinutes(at("10:00:10"), at("10:00:20")), { from: at("10:00"), to: at("10:01") });
  assert.deepEqual(wholeMinutes(at("10:00"), at("10:00")), { from: at("10:00"), to: at("10:01") });
});
