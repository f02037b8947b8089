// The driver of JavaScript for worldengine/client/languages: it answers questions about bytes, a line each.
import { text } from "node:stream/consumers";
import { canonicalJson, hash } from "../canonical.mjs";
import { idempotencyKey } from "../emit.mjs";
import { makeHandoff } from "../handoff.mjs";
import { deriveResultId, verifyResult } from "../result.mjs";
import { townToken } from "../subjects.mjs";

/** @type {Record<string, (asked: any) => Promise<object>>} */
const answers = {
  canonical: async ({ value }) => ({ text: canonicalJson(value), hash: await hash(value) }),
  handoff: async ({ town, proposal }) => ({ handoff: await makeHandoff(town, proposal) }),
  resultId: async ({ result }) => ({ id: await deriveResultId(result) }),
  verify: async ({ result }) => ({ valid: await verifyResult(result) === null }),
  token: async ({ townId }) => ({ token: await townToken(townId) }),
  key: async ({ logicalAttemptId, ...asked }) =>
    ({ key: await idempotencyKey({ ...asked, attempt: logicalAttemptId }) }),
};

// readline would also break a line at U+2028, which JSON leaves in strings.
for (const line of (await text(process.stdin)).split("\n").slice(0, -1)) {
  const asked = JSON.parse(line);
  process.stdout.write(`${JSON.stringify(await answers[asked.do](asked))}\n`);
}
