import { useEffect, useRef } from "preact/hooks";
import { townToken } from "../../../client/js/subjects.mjs";
import { useChanges } from "./changes.js";
import { feed } from "./feed.js";
import { useLoad, useSoon } from "./load.js";
import { can, session } from "./session.js";

const most = 1000;
const longest = 2 ** 31 - 1; // of a timer

/** What waits for a person's approval in a town, or in all, up to a bound. */
async function load(townId) {
  if (!can("approval.list")) return { waiting: [], approved: [], more: false };
  const all = [];
  for await (const a of session.get().client.approvals({ townId, limit: 200 })) if (all.push(a) > most) break;
  const waits = (a) => a.status === "waiting";
  const more = all.length > most;
  return { waiting: all.filter(waits), approved: all.filter((a) => !waits(a)), more };
}

/** The proposals that wait for approval, live: a load of {waiting, approved, more}. */
export function useApprovals(townId) {
  const list = useLoad(() => load(townId), [townId]);
  const soon = useSoon(list.reload, 500);
  const towns = useRef({ ids: new Set(), tokens: new Set() });
  useEffect(() => {
    if (!list.data) return undefined;
    const all = [...list.data.waiting, ...list.data.approved];
    const ids = new Set(all.map((a) => a.townId));
    const known = { ids, tokens: new Set() };
    towns.current = known;
    for (const id of ids) townToken(id).then((token) => known.tokens.add(token), () => {});
    if (all.length === 0) return undefined;
    const next = Math.min(...all.map((a) => new Date(a.expiresAt).getTime())) - Date.now();
    const timer = setTimeout(list.reload, Math.min(Math.max(next, 0) + 1000, longest));
    return () => clearTimeout(timer);
  }, [list.data]);
  useEffect(() => feed.listen((events, dropped) => {
    if (dropped > 0 || events.some((e) => mayMatter(e, towns.current.tokens))) soon();
  }), [soon]);
  useChanges((changes) => { if (changes.some((c) => towns.current.ids.has(c.townId))) soon(); });
  return list;
}

/** Reports whether another proposal may wait after an event, or one of a town with such a token does no longer. */
function mayMatter({ eventType, payload, town }, tokens) {
  if (eventType === "SignalAccepted") return ["APPROVE", "DENY"].includes(payload?.signal);
  return ["RunCompleted", "RunFailed"].includes(eventType) &&
    (payload?.reasonCode === "APPROVAL_REQUIRED" || tokens.has(town));
}
