import assert from "node:assert/strict";
import { execFileSync } from "node:child_process";
import { test } from "node:test";
import { quoted } from "../src/shell.js";

test("a shell reads every word back, and carries nothing of it out", () => {
  const words = ["", "run-1", "a b", "it's", '"', "$(touch x)", "`touch x`", "\\n", "a;b&c|d>e<f", "~", "*?[x]", "=a", "Größe"];
  const printed = execFileSync("sh", ["-c", `printf '%s\\n' ${words.map(quoted).join(" ")}`]).toString();
  assert.equal(printed, words.map((w) => `${w}\n`).join(""));
  assert.equal(quoted("run-1"), "run-1");
});
