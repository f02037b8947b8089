import { useEffect, useRef } from "preact/hooks";
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
  const towns = useRef(new Set());
  useEffect(() => {
    if (!list.data) return undefined;
    const all = [...list.data.waiting, ...list.data.approved];
    towns.current = new Set(all.map((a) => a.townId));
    if (all.length === 0) return undefined;
    const next = Math.min(...all.map((a) => new Date(a.expiresAt).getTime())) - Date.now();
    const timer = setTimeout(list.reload, Math.min(Math.max(next, 0) + 1000, longest));
    return () => clearTimeout(timer);
  }, [list.data]);
  useEffect(() => feed.listen((commits, lost) => {
    if (lost || commits.some((c) => mayMatter(c, towns.current))) soon();
  }, townId), [soon, townId]);
  return list;
}

/** Reports whether another proposal may wait after a commit, or one of these towns may no longer. */
const mayMatter = ({ cause, townId, hash }, towns) =>
  cause === "asked" || cause === "decided" || (Boolean(hash) && towns.has(townId));
