import { proposalTypes, runStatuses } from "../../../../../client/js/contract.gen.mjs";
import { idOfRuns } from "./find.js";
import { areas, href } from "./route.js";
import { resultStatuses } from "./rows.js";
import { can } from "./session.js";
import { visible } from "./visible.js";

/** How many towns and runs are suggested. */
const most = { towns: 6, runs: 3 };

/** Returns the pages whose name or filter begins with a text, as {kind, name, href}. */
export function suggestedPages(text, may = can) {
  const wanted = text.toLowerCase();
  const begins = (word) => word.toLowerCase().startsWith(wanted);
  return [
    ...areas.filter(([, name, verb]) => begins(name) && (!verb || may(verb))).map(([area, name]) => ({ kind: "page", name, href: href(area ? [area] : []) })),
    ...[...resultStatuses, ...runStatuses].filter(begins).map((status) => ({ kind: "runs", name: status.toLowerCase(), href: href(["runs"], { status }) })),
    ...Object.entries(proposalTypes).filter(([type, { name }]) => begins(name) || begins(type)).map(([type, { name }]) => ({ kind: "runs", name, href: href(["runs"], { type }) })),
  ].slice(0, 4);
}

/** Returns what a text that is being typed may mean: pages, towns, and runs by the beginning of an id. */
export async function suggest(text, ask) {
  const none = () => ({ towns: [], runs: [] });
  const [{ towns }, { runs }] = await Promise.all([
    ask("town.list", { text, limit: most.towns }).catch(none),
    idOfRuns.test(text) ? ask("run.list", { id: text, limit: most.runs }).catch(none) : none(),
  ]);
  return [
    ...suggestedPages(text),
    ...towns.map(({ townId }) => ({ kind: "town", name: visible(townId).slice(0, 80), href: href(["towns", townId]) })),
    ...runs.map(({ runId, command }) => ({ kind: "run", name: `${runId.slice(0, 8)} ${visible(command).slice(0, 60)}`, href: href(["runs", runId]) })),
  ];
}
