import { useEffect, useRef, useState } from "preact/hooks";
import { Command } from "../actions.jsx";
import { feed } from "../feed.js";
import { useKept } from "../kept.js";
import { useLoad, useSoon } from "../load.js";
import { href, route, setQuery } from "../route.js";
import { appliers } from "../runtable.jsx";
import { ask, session } from "../session.js";
import { useStore } from "../store.js";
import { Age, Said, Short, count, counted } from "../text.jsx";
import { Asking, Empty, Heading, Select, Trouble } from "../ui.jsx";

const pageSize = 100;

/** The states by which towns are filtered, and the orders: those of town.list. */
const states = { paused: "paused", applying: "applying", noPlugin: "no plugin", waiting: "waiting for approval", inDoubt: "in doubt" };
const orders = { day: "highest day", changed: "last change" };

/** How soon after a commit the list is asked for again, in milliseconds. */
const again = 2000;

export function Towns() {
  const { query } = useStore(route);
  const of = (name) => query.get(name) || undefined;
  const [text, state, sort] = [of("q"), of("state"), of("sort")];
  const [shown, setShown] = useKept("shown", pageSize);
  const list = useLoad(() => ask("town.list", { text, state, sort, limit: shown }), [text, state, sort, shown], "towns");
  const soon = useSoon(list.reload, again);
  useEffect(() => feed.listen(soon), []);
  const flash = useFlash(list.data?.towns);
  const { world } = useStore(session);
  const { towns = [], total, found, next } = list.data ?? {};
  const filter = (change) => { setShown(pageSize); setQuery(change); };
  return (
    <>
      <Heading title="Towns">
        <button type="button" onClick={list.reload}>Refresh</button>
      </Heading>
      <form class="filters" aria-label="Filters" onSubmit={(e) => e.preventDefault()}>
        <label class="filter">Filter <input type="search" value={text ?? ""} onInput={(e) => filter({ q: e.target.value })} /></label>
        <Select label="State" value={state} of={states} onChange={(v) => filter({ state: v })} />
        <Select label="Order" none="id" value={sort} of={orders} onChange={(v) => filter({ sort: v })} />
      </form>
      <Trouble error={list.error} retry={list.reload} />
      <Asking of={list} />
      {list.data && <p class="soft" aria-live="polite">{text || state ? `${count(found)} of ` : null}{counted(total, "town")}</p>}
      {total === 0 && (
        <Empty>
          <p>This world has no towns yet. Create one:</p>
          <Command text={`handoffctl${world === "main" ? "" : ` --world ${world}`} town put town.json`} />
        </Empty>
      )}
      {total > 0 && found === 0 && !list.loading && <Empty>No town{text && <> has “<Said text={text} />” in its id</>}{text && state && " and"}{state && ` is ${states[state] ?? "in that state"}`}.</Empty>}
      {towns.length > 0 && (
        <table class="rows">
          <caption class="unseen">Towns</caption>
          <thead><tr><th scope="col">Town</th><th scope="col" class="number">Day</th><th scope="col">State</th><th scope="col" class="wide">Applied by</th><th scope="col" class="wide number">Revision</th><th scope="col" class="wide">Hash</th></tr></thead>
          <tbody>{towns.map((t) => <Row key={t.townId} town={t} flash={flash.has(t.townId)} />)}</tbody>
        </table>
      )}
      {next && <button type="button" onClick={() => setShown(shown + 2 * pageSize)}>Show more ({count(found - towns.length)})</button>}
    </>
  );
}

function Row({ town, flash }) {
  const { townId, paused, pendingRunId, pluginAbsentSince: away, waiting = 0, inDoubt } = town;
  const calm = !paused && !pendingRunId && !away && waiting === 0 && !inDoubt;
  return (
    <tr class={flash ? "flash" : ""}>
      <td><a data-row href={href(["towns", townId])}><Said text={townId} most={64} /></a></td>
      <td class="number">{count(town.decisionEpoch)}</td>
      <td>
        {paused && <span class="status wait">paused</span>} {pendingRunId && <span class="status busy">applying</span>}{" "}
        {away && <span class="status bad">no plugin<span class="wide"> for <Age since={away} /></span></span>}{" "}
        {waiting > 0 && <a class="status wait" href={href(["approvals"], { town: townId })}>{counted(waiting, "approval")}<span class="wide"> waiting</span></a>}{" "}
        {inDoubt && <span class="status bad">in doubt</span>}
        {calm && <span class="soft">–</span>}
      </td>
      <td class="wide soft">{appliers[town.apply] ?? town.apply ?? "…"}</td>
      <td class="wide number soft">{count(town.revision)}</td>
      <td class="wide soft"><Short id={town.snapshotHash} /></td>
    </tr>
  );
}

/** The towns that have changed since the list before, for a moment. */
function useFlash(towns) {
  const before = useRef(new Map());
  const [flash, setFlash] = useState(new Set());
  useEffect(() => {
    if (!towns) return undefined;
    const changed = towns.filter((t) => (before.current.get(t.townId) ?? t.revision) !== t.revision).map((t) => t.townId);
    before.current = new Map(towns.map((t) => [t.townId, t.revision]));
    if (changed.length === 0) return undefined;
    setFlash(new Set(changed));
    const timer = setTimeout(() => setFlash(new Set()), 1500);
    return () => { clearTimeout(timer); setFlash(new Set()); };
  }, [towns]);
  return flash;
}
