import { useMemo, useState } from "preact/hooks";
import { proposalTypes, runStatuses, signals } from "../../../../../../client/js/contract.gen.mjs";
import { inAddress, inRequest, rangeOf } from "../range.js";
import { go, href, route, setQuery } from "../route.js";
import { mayRetry, resultStatuses } from "../rows.js";
import { mostRows } from "../runlist.js";
import { RunTable, nameOf } from "../runtable.jsx";
import { session } from "../session.js";
import { useStore } from "../store.js";
import { Time, counted, zone } from "../text.jsx";
import { Heading, Select } from "../ui.jsx";
import { useRuns } from "../useruns.js";
import { Chosen, mayChoose } from "./chosen.jsx";
import { ExportButton } from "./export.jsx";
import { RetryButton } from "./retry.jsx";

const named = (values, text) => Object.fromEntries(values.map((v) => [v, text(v)]));
const statuses = named([...resultStatuses, ...runStatuses], (s) => s.toLowerCase() + (s === "FAILED" ? " (run)" : ""));
const types = named([...Object.keys(proposalTypes), ...signals], nameOf);
const since = { "the last hour": 3600e3, today: 864e5, "the last week": 6048e5 };
const ages = { "the last hour": "the last hour", today: "the last 24 hours", "the last week": "the last week" };

/** The filters that are folded unless the address has one of them. */
const rare = ["actor", "reason", "id", "from", "to"];

/** Returns the range of time of the address: from and to, or since, which ends now. */
function useRange(query) {
  const age = since[query.get("since") ?? ""];
  return useMemo(() => {
    if (!age) return rangeOf(query);
    return { from: Math.floor((Date.now() - age) / 60e3) * 60e3, to: undefined };
  }, [query]);
}

export function Runs() {
  const { query } = useStore(route);
  const of = (name) => query.get(name) || undefined;
  const range = useRange(query);
  const filter = {
    status: of("status"), type: of("type"), townId: of("town"), actorId: of("actor"), reasonCode: of("reason"), id: of("id"), ...inRequest(range),
  };
  const filtered = Object.values(filter).some(Boolean);
  const after = Number(of("after")) || undefined;
  const list = useRuns({ ...filter, after });
  const [chosen, setChosen] = useState(new Set());
  const change = (of) => { setChosen(new Set()); setQuery({ ...of, after: "" }); };
  const text = (label, name, as = (v) => v) => (
    <label class="filter">{label} <input type="search" value={of(name) ?? ""} onChange={(e) => change({ [name]: as(e.target.value.trim()) })} /></label>
  );
  const time = (label, name) => (
    <label class="filter">{label} <input type="datetime-local" value={local(range[name])} onChange={(e) => change({ since: "", ...inAddress({ ...range, [name]: fromLocal(e.target.value) }) })} /></label>
  );
  const failed = list.rows.filter((row) => row.reason === mayRetry && row.result === "failed").map((row) => row.runId).reverse();
  const partial = Boolean(after) || list.next > 0 || list.cut > 0; // the outage may have more runs than are listed
  const older = () => (list.rows.length < mostRows ? list.older() : go(["runs"], { ...Object.fromEntries(query), after: list.next }));
  const choose = list.rows.some(mayChoose) ? { chosen, set: setChosen, may: mayChoose } : null;
  return (
    <>
      <Heading title="Runs">
        {of("reason") === mayRetry && (partial
          ? <RetryButton runIds={failed} filter={filter} label="Try all runs again" onDone={list.retry} />
          : <RetryButton runIds={failed} label={`Try ${counted(failed.length, "run")} again`} onDone={list.retry} />)}
        {after && <a class="button" href={href(["runs"], { ...Object.fromEntries(query), after: "" })}>The newest runs</a>}
        {list.rows.length > 0 && <ExportButton filter={filter} name={`runs-${session.get().world}`} />}
      </Heading>
      <form class="filters" aria-label="Filters" onSubmit={(e) => e.preventDefault()}>
        <Select label="Status" value={of("status")} of={statuses} onChange={(v) => change({ status: v })} />
        <Select label="What" value={of("type")} of={types} onChange={(v) => change({ type: v })} />
        <Select label="Since" value={of("since")} of={ages} onChange={(v) => change({ since: v, ...inAddress() })} />
        {text("Town", "town")}
        <details open={rare.some(of)}>
          <summary>More filters</summary>
          <div>
            {text("Actor", "actor")}
            {text("Reason", "reason", (v) => v.toUpperCase())}
            {text("Id", "id")}
            {time("From", "from")}
            {time("To", "to")}
          </div>
        </details>
      </form>
      <Total of={list} after={after} />
      <RunTable list={list} filtered={filtered || after} choose={choose} />
      {list.next > 0 && (
        <p class="actions">
          <button type="button" disabled={list.loading} onClick={older}>Older runs</button>
          {list.searchedTo && filtered && <span class="soft">Searched back to <Time at={list.searchedTo} /> {zone}</span>}
        </p>
      )}
      {list.cut > 0 && <p class="soft">{counted(list.cut, "older run was", "older runs were")} left out of this list to keep it quick. Reload the page, or narrow the filters, to see more.</p>}
      {choose && <Chosen rows={list.rows.filter((row) => chosen.has(row.runId))} onClear={() => setChosen(new Set())} onDone={list.retry} />}
    </>
  );
}

/** How many runs pass, as far as that is known. */
function Total({ of: { rows, next, cut, newer }, after }) {
  if (rows.length === 0) return null;
  const more = next > 0 || cut > 0 || after;
  return <p class="soft" aria-live="off">{more ? "More than " : ""}{counted(rows.length + newer, "run")}{more ? `; ${after ? "older ones" : "the newest"} are listed` : ""}</p>;
}

/** A time as an input of the browser has it, in this machine's zone, and back. */
const local = (at) => (at === undefined ? "" : new Date(at - new Date(at).getTimezoneOffset() * 60e3).toISOString().slice(0, 16));
const fromLocal = (text) => (text ? new Date(text).getTime() : undefined);
