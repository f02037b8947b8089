import { useState } from "preact/hooks";
import { go } from "./route.js";
import { ask } from "./session.js";
import { count } from "./text.jsx";

/** How many of the newest runs are looked through for an id or hash that no verb takes, and how many at once. */
const most = 1000;
const page = 200;

const uuid = /^[0-9a-f]{8}-[0-9a-f]{4}-/i;
const isKey = /^proposal_[0-9a-f]{64}$/;
/** The ids of results, handoffs and keys, and how pages show these and ids of runs: by their first digits. */
const idOfRuns = /^(?:(?:result|handoff|proposal)_)?[0-9a-f]{8,64}$/;

/** Returns the newest run that has an id which begins so; undefined where there is none among the newest. */
async function runOf(text) {
  for (let after, seen = 0; seen < most; seen += page) {
    const { runs, next } = await ask("run.list", { limit: page, after });
    const found = runs.find(({ runId, metadata: { started, outcome, planId } = {} }) =>
      [runId, outcome?.resultId, started?.handoffId, planId].some((id) => id && (id.startsWith(text) || id.slice(id.indexOf("_") + 1).startsWith(text))));
    if (found || !next) return found?.runId;
    after = next;
  }
  return undefined;
}

/** Goes to the page of what a text names; where it names nothing, to the towns whose ids or hashes have it. */
async function find(text) {
  if (uuid.test(text)) {
    await ask("run.get", { runId: text });
    return go(["runs", text]);
  }
  const known = isKey.test(text) ? await ask("result.get", { idempotencyKey: text }).catch(() => null) : null;
  const town = known ? null : await ask("town.get", { townId: text }).catch(() => null);
  if (town) return go(["towns", text]);
  const runId = known?.runId ?? (idOfRuns.test(text) ? await runOf(text) : undefined);
  if (runId) return go(["runs", runId]);
  if (text.includes("_") && idOfRuns.test(text)) throw new Error(`No such run is among the newest ${count(most)}`);
  return go(["towns"], { q: text });
}

/** Finds a town, a run, a key or a hash. */
export function Search() {
  const [text, setText] = useState("");
  const [why, setWhy] = useState("");
  const submit = async (e) => {
    e.preventDefault();
    const asked = text.trim();
    if (!asked) return;
    setWhy("");
    try {
      await find(asked);
      setText("");
      document.activeElement?.blur();
    } catch (error) {
      setWhy(error.code === "UNKNOWN_RUN" ? "No such run is kept" : error.message);
    }
  };
  return (
    <form class="search" role="search" onSubmit={submit}>
      <label class="unseen" for="search">Find a town, run, key or hash</label>
      <input id="search" type="search" placeholder="Find a town, run, key or hash  /" value={text} aria-describedby="search-why" onInput={(e) => { setText(e.target.value); setWhy(""); }} />
      <span id="search-why" role="status">{why}</span>
    </form>
  );
}
