import { useEffect, useMemo, useRef, useState } from "preact/hooks";
import { useApprovals } from "../approvals.js";
import { feed } from "../feed.js";
import { eachOf, useLoad, useSoon } from "../load.js";
import { href, route, setQuery } from "../route.js";
import { appliers } from "../runtable.jsx";
import { ask, session } from "../session.js";
import { useStore } from "../store.js";
import { Said, Short, count, counted } from "../text.jsx";
import { Asking, Command, Empty, Heading, Trouble } from "../ui.jsx";

const pageSize = 100;

async function allTowns() {
  const towns = [];
  for (let after; ;) {
    const page = await ask("town.list", { after });
    towns.push(...page.towns);
    if (!page.next || towns.length >= 50_000) return { towns, more: Boolean(page.next) };
    after = page.next;
  }
}

export function Towns() {
  const { query } = useStore(route);
  const q = query.get("q") ?? "";
  const list = useLoad(allTowns, []);
  const [shown, setShown] = useState(pageSize);
  const found = useMemo(() => {
    const needle = q.toLowerCase();
    return (list.data?.towns ?? []).filter((t) => t.townId.toLowerCase().includes(needle) || (q && t.snapshotHash.startsWith(q)));
  }, [list.data, q]);
  const visible = found.slice(0, shown);
  const [states, flash, need] = useStates(visible, list);
  const waiting = useWaiting();
  useEffect(() => need(), [visible.map((t) => t.townId).join("\n")]);
  const { config } = useStore(session);
  return (
    <>
      <Heading title="Towns">
        <label class="filter">Filter <input type="search" value={q} onInput={(e) => { setShown(pageSize); setQuery({ q: e.target.value }); }} /></label>
        <button type="button" onClick={list.reload}>Refresh</button>
      </Heading>
      <Trouble error={list.error} retry={list.reload} />
      <Asking of={list} />
      {list.data && <p class="soft" aria-live="polite">{q ? `${count(found.length)} of ` : null}{list.data.more ? "more than " : null}{counted(list.data.towns.length, "town")}</p>}
      {list.data?.towns.length === 0 && (
        <Empty>
          <p>This world has no towns yet. Create one:</p>
          <Command text={`handoffctl${config.world === "main" ? "" : ` --world ${config.world}`} town put town.json`} />
        </Empty>
      )}
      {list.data?.towns.length > 0 && found.length === 0 && <Empty>No town has “<Said text={q} />” in its id.</Empty>}
      {visible.length > 0 && (
        <table class="rows">
          <caption class="unseen">Towns</caption>
          <thead><tr><th scope="col">Town</th><th scope="col" class="number">Day</th><th scope="col">State</th><th scope="col" class="wide">Applied by</th><th scope="col" class="wide number">Revision</th><th scope="col" class="wide">Hash</th></tr></thead>
          <tbody>{visible.map((t) => <Row key={t.townId} town={states.get(t.townId) ?? t} waiting={waiting.get(t.townId) ?? 0} flash={flash.has(t.townId)} />)}</tbody>
        </table>
      )}
      {found.length > shown && <button type="button" onClick={() => setShown(shown + 5 * pageSize)}>Show more ({count(found.length - shown)})</button>}
    </>
  );
}

/** How many proposals wait for approval, by town. */
function useWaiting() {
  const { data } = useApprovals();
  return useMemo(() => {
    const towns = new Map();
    for (const { townId } of data?.waiting ?? []) towns.set(townId, (towns.get(townId) ?? 0) + 1);
    return towns;
  }, [data]);
}

function Row({ town, waiting, flash }) {
  return (
    <tr class={flash ? "flash" : ""}>
      <td><a data-row href={href(["towns", town.townId])}><Said text={town.townId} most={64} /></a></td>
      <td class="number">{count(town.decisionEpoch)}</td>
      <td>
        {town.paused && <span class="status wait">paused</span>} {town.pendingRunId && <span class="status busy">applying</span>}{" "}
        {waiting > 0 && <a class="status wait" href={href(["approvals"], { town: town.townId })}>{counted(waiting, "approval")}<span class="wide"> waiting</span></a>}
        {!town.paused && !town.pendingRunId && waiting === 0 && <span class="soft">–</span>}
      </td>
      <td class="wide soft">{appliers[town.apply] ?? town.apply ?? "…"}</td>
      <td class="wide number soft">{count(town.revision)}</td>
      <td class="wide soft"><Short id={town.snapshotHash} /></td>
    </tr>
  );
}

/** The states of the towns that are shown: asked for once, and again when they may have changed. */
function useStates(visible, list) {
  const [states, setStates] = useState(new Map());
  const [flash, setFlash] = useState(new Set());
  const known = useRef({ states: new Map(), dirty: new Set() });
  const need = useSoon(async () => {
    const { states: have, dirty } = known.current;
    const missing = visible.filter((t) => !have.has(t.townId) || dirty.has(t.townId)).map((t) => t.townId);
    const changed = new Set();
    await eachOf(missing, async (townId) => {
      const again = dirty.delete(townId);
      try {
        const before = have.get(townId);
        const state = await ask("town.get", { townId });
        have.set(townId, state);
        if (again && before?.revision !== state.revision) changed.add(townId);
      } catch { /* the row shows what the list says */ }
    });
    setStates(new Map(have));
    if (changed.size > 0) {
      setFlash(changed);
      setTimeout(() => setFlash(new Set()), 1500);
    }
  }, 150);
  const more = useSoon(list.reload, 1000);
  const newest = useRef(new Map()); // the revisions that came, until the list is there
  useEffect(() => {
    const { states: have, dirty } = known.current;
    const listed = new Map(list.data?.towns.map((t) => [t.townId, t.revision]));
    const merge = () => {
      if (!list.data) return;
      for (const [townId, revision] of newest.current) {
        const shown = have.get(townId)?.revision ?? listed.get(townId);
        if (shown === undefined) more(); // it is new
        else if (shown < revision) dirty.add(townId);
      }
      newest.current.clear();
      if (dirty.size > 0) need();
    };
    merge();
    return feed.listen((commits, lost) => {
      for (const { townId, revision } of commits) if (revision) newest.current.set(townId, revision);
      if (lost) {
        for (const townId of have.keys()) dirty.add(townId);
        more();
      }
      merge();
    });
  }, [list.data]);
  return [states, flash, need];
}
