import { go as openPage } from "./route.js";
import { ask } from "./session.js";
import { count } from "./text.jsx";

/** How many of the newest runs are searched for an id. */
const most = 20_000;

const uuid = /^[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f-]{18,}$/i;
const isKey = /^proposal_[0-9a-f]{64}$/;
/** The ids of runs, results, handoffs and keys, and how pages show them: by their first digits. */
export const idOfRuns = /^(?:(?:result|handoff|proposal)_)?[0-9a-f]{4}[0-9a-f-]{0,60}$/;

/** The digits of a run's id that pages show: no other run of the newest ones begins with them. */
const shownDigits = 8;

/** Searches the newest runs for ids that begin with a text. It returns the ids of some runs, and how many were searched. */
async function runsWith(id) {
  const found = [];
  let searched = 0;
  for (let after; searched < most && found.length < 2;) {
    const page = await ask("run.list", { id, limit: 2, after });
    found.push(...page.runs.map((run) => run.runId));
    searched += page.searched;
    if (id.length >= shownDigits && found[0]?.startsWith(id)) break;
    after = page.next;
    if (!after) break;
  }
  return { found, searched };
}

const none = () => null;
const some = async (filter) => (await ask("run.list", { ...filter, limit: 1 })).runs.length > 0;

/** Goes to the page that a text names, unless the reader has opened another one meanwhile. The error says what was searched. */
export async function find(text) {
  const from = location.hash;
  const go = (...page) => { if (location.hash === from) openPage(...page); };
  if (uuid.test(text) && await ask("run.get", { runId: text }).catch(none)) return go(["runs", text]);
  if (await ask("town.get", { townId: text }).catch(none)) return go(["towns", text]);
  const known = isKey.test(text) ? await ask("result.get", { idempotencyKey: text }).catch(none) : null;
  if (known) return go(["runs", known.runId]);
  const looked = ["towns, actors and reason codes"];
  if (idOfRuns.test(text)) {
    const { found, searched } = await runsWith(text);
    if (found.length === 1) return go(["runs", found[0]]);
    if (found.length > 1) return go(["runs"], { id: text });
    looked.push(`ids, keys and hashes of the ${count(searched)} newest runs`);
  }
  const reason = text.toUpperCase();
  if (await some({ reasonCode: reason })) return go(["runs"], { reason });
  if (await some({ actorId: text })) return go(["runs"], { actor: text });
  if ((await ask("town.list", { text, limit: 1 })).found > 0) return go(["towns"], { q: text });
  throw new Error(`Nothing found: searched ${looked.join(", and ")}`);
}
