import assert from "node:assert/strict";
import { readFileSync } from "node:fs";
import { test } from "node:test";
import { visible } from "../src/visible.js";

const cases = JSON.parse(readFileSync(new URL("../../../../../../testdata/hidden-characters.json", import.meta.url)));

for (const { text, shown } of cases) {
  test(`${JSON.stringify(text)} is shown as ${shown}`, () => assert.equal(visible(text), shown));
}

test("half of a surrogate pair is spelled out, and nothing is an empty text", () => {
  assert.equal(visible("a\ud800"), "a\\ud800");
  assert.deepEqual([visible(undefined), visible(null), visible(0)], ["", "", "0"]);
});
