import { proposalTypes, runStatuses, signals } from "../../../../client/js/contract.gen.mjs";
import { route, setQuery } from "../route.js";
import { RunTable, nameOf } from "../runtable.jsx";
import { useStore } from "../store.js";
import { counted } from "../text.jsx";
import { Heading } from "../ui.jsx";
import { useRuns } from "../useruns.js";

const statuses = ["executed", "failed", "rejected", "stale", "duplicate", ...runStatuses];
const types = [...Object.keys(proposalTypes), ...signals];
const since = { "": 0, "the last hour": 3600e3, "today": 864e5, "the last week": 6048e5 };

export function Runs() {
  const { query } = useStore(route);
  const of = (name) => query.get(name) || undefined;
  const age = since[of("since") ?? ""];
  const filter = {
    status: of("status"), type: of("type"), townId: of("town"), actorId: of("actor"),
    from: age ? new Date(Math.floor((Date.now() - age) / 60e3) * 60e3).toISOString() : undefined,
  };
  const list = useRuns(filter);
  const select = (label, name, values, text = (v) => v) => (
    <label class="filter">{label}{" "}
      <select value={of(name) ?? ""} onChange={(e) => setQuery({ [name]: e.target.value })}>
        <option value="">any</option>
        {values.map((v) => <option key={v} value={v}>{text(v)}</option>)}
      </select>
    </label>
  );
  const text = (label, name) => (
    <label class="filter">{label} <input type="search" value={of(name) ?? ""} onChange={(e) => setQuery({ [name]: e.target.value.trim() })} /></label>
  );
  return (
    <>
      <Heading title="Runs" />
      <form class="filters" aria-label="Filters" onSubmit={(e) => e.preventDefault()}>
        {select("Status", "status", statuses, (s) => s.toLowerCase() + (s === "FAILED" ? " (run)" : ""))}
        {select("What", "type", types, nameOf)}
        {select("Since", "since", Object.keys(since).filter(Boolean))}
        {text("Town", "town")}
        {text("Actor", "actor")}
      </form>
      <RunTable list={list} filtered={Object.values(filter).some(Boolean)} />
      {list.next > 0 && <button type="button" disabled={list.loading} onClick={list.older}>Older runs</button>}
      {list.cut > 0 && <p class="soft">{counted(list.cut, "older run was", "older runs were")} left out of this list to keep it quick. Reload the page, or narrow the filters, to see more.</p>}
    </>
  );
}
