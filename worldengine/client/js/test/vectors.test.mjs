// What the agents' own library printed: ids and hashes of this client are the same.
import assert from "node:assert/strict";
import { readFileSync } from "node:fs";
import { test } from "node:test";
import { canonicalJson, hash, makeHandoff, townToken, verifyResult } from "../index.mjs";

/** @param {string} name */
const vectors = (name) =>
  JSON.parse(readFileSync(new URL(`../../../../testdata/vectors/${name}`, import.meta.url), "utf8"));

test("results of both revisions verify, and nothing of them can be changed", async () => {
  const results = [...vectors("results.json"), ...vectors("results.revision-1.json")];
  assert.equal(results.length, 288);
  for (const { name, result } of results) {
    assert.equal(await verifyResult(result), null, name);
    for (const change of [
      { reasonCode: `${result.reasonCode}!` }, { accepted: !result.accepted }, { handoffId: "handoff_" },
      { idempotencyKey: "another" }, { status: "done" }, { schemaVersion: 2 },
      ...(result.type ? [{ actorId: "another" }, { authorityCommands: ["op me"] }, { resultId: "another" }] : []),
    ]) assert.notEqual(await verifyResult({ ...result, ...change }), null, `${name} ${JSON.stringify(change)}`);
  }
  for (const no of [null, 7, [], {}]) assert.notEqual(await verifyResult(no), null);
});

test("a proposal becomes the handoff that the library makes of it", async () => {
  const handoffs = vectors("handoffs.valid.json");
  assert.equal(handoffs.length, 60);
  for (const { name, handoff } of handoffs) {
    const { proposal, snapshotHash, decisionEpoch } = handoff;
    const made = await makeHandoff({ townId: proposal.townId, snapshotHash, decisionEpoch }, {
      ...proposal, proposalId: undefined,
    });
    assert.deepEqual(made, handoff, name);
  }
});

test("a proposal with a type, a member or an argument that does not exist is refused with its path", async () => {
  const right = { type: "SALVAGE_PLAN", args: { focus: "dread" }, actorId: "a", reason: "r" };
  const town = { townId: "t", snapshotHash: "", decisionEpoch: 1 };
  for (const [wrong, message] of /** @type {[any, RegExp][]} */ ([
    [{ type: "DANCE" }, /^\/proposal\/type must be one of MAYOR_ACCEPT_MISSION, .*, not DANCE$/],
    [{ precondition: [] }, /^\/proposal\/precondition does not exist; a proposal has type, /],
    [{ args: {} }, /^\/proposal\/args\/focus must be there: args must have focus$/],
    [{ args: { focus: "dread", projectId: "wall" } }, /^\/proposal\/args\/projectId does not exist; the args of SALV/],
    [{ args: { focus: "gold" } }, /^\/proposal\/args\/focus must be one of scarcity, dread, general, not gold$/],
  ])) {
    await assert.rejects(makeHandoff(town, { ...right, ...wrong }), { name: "TypeError", message });
  }
});

test("canonical JSON is that of the library", async () => {
  for (const { name, snapshotHash, canonicalJson: text } of vectors("snapshots.json")) {
    assert.equal(canonicalJson(JSON.parse(text)), text, name);
    assert.equal(await hash(JSON.parse(text)), snapshotHash, name);
  }
  assert.equal(canonicalJson({ b: undefined, a: [-0, 1e21, "\u2028"] }), '{"a":[0,1e+21,"\u2028"]}');
});

test("a town has the token that the server gives it", async () => {
  assert.equal(await townToken("town-threatened"), "town-threatened");
  assert.equal(await townToken("Town 1.é"), "Town%201%2E%C3%A9");
  assert.match(await townToken("x".repeat(129)), /^=[0-9a-f]{64}$/);
});
