import assert from "node:assert/strict";
import { test } from "node:test";

Object.assign(globalThis, { location: { hash: "" }, history: { state: null, replaceState() {} }, addEventListener() {} });
const { href, parse, route } = await import("../src/route.js");

test("an address has the world before the page if there are several", () => {
  const { world, path, query } = parse("#/=survival/towns/a%20b%2Fc?q=x%3D1");
  assert.deepEqual([world, path, query.get("q")], ["survival", ["towns", "a b/c"], "x=1"]);
  assert.equal(href(path, { q: "x=1", none: "" }, world), "#/=survival/towns/a%20b%2Fc?q=x%3D1");
});

test("links stay in the world of the address, and old addresses have none", () => {
  assert.equal(href(["runs"]), "#/runs");
  assert.equal(href([]), "#/");
  route.set(parse("#/=survival"));
  assert.equal(href(["runs"]), "#/=survival/runs");
  assert.equal(href([]), "#/=survival");
  assert.equal(href(["towns", "=oak"], {}, "creative"), "#/=creative/towns/%3Doak");
  assert.deepEqual(parse("#/towns/x").world, undefined);
  assert.deepEqual(parse("").path, []);
});
