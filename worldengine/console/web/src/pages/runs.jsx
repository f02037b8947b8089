import { useMemo } from "preact/hooks";
import { proposalTypes, runStatuses, signals } from "../../../../client/js/contract.gen.mjs";
import { Later } from "../later.jsx";
import { go, href, route, setQuery } from "../route.js";
import { mayRetry } from "../rows.js";
import { mostRows } from "../runlist.js";
import { RunTable, nameOf } from "../runtable.jsx";
import { useStore } from "../store.js";
import { Time, counted, zone } from "../text.jsx";
import { Heading, Select } from "../ui.jsx";
import { useRuns } from "../useruns.js";

const named = (values, text) => Object.fromEntries(values.map((v) => [v, text(v)]));
const statuses = named(["executed", "failed", "rejected", "stale", "duplicate", ...runStatuses], (s) => s.toLowerCase() + (s === "FAILED" ? " (run)" : ""));
const types = named([...Object.keys(proposalTypes), ...signals], nameOf);
const since = { "the last hour": 3600e3, today: 864e5, "the last week": 6048e5 };
const ages = named(Object.keys(since), (v) => v);

export function Runs() {
  const { query } = useStore(route);
  const of = (name) => query.get(name) || undefined;
  const from = useMemo(() => {
    const age = since[of("since") ?? ""];
    return age ? new Date(Math.floor((Date.now() - age) / 60e3) * 60e3).toISOString() : undefined;
  }, [of("since")]);
  const filter = {
    status: of("status"), type: of("type"), townId: of("town"), actorId: of("actor"), reasonCode: of("reason"), id: of("id"), from,
  };
  const filtered = Object.values(filter).some(Boolean);
  const after = Number(of("after")) || undefined;
  const list = useRuns({ ...filter, after });
  const change = (of) => setQuery({ ...of, after: "" });
  const text = (label, name, as = (v) => v) => (
    <label class="filter">{label} <input type="search" value={of(name) ?? ""} onChange={(e) => change({ [name]: as(e.target.value.trim()) })} /></label>
  );
  const failed = list.rows.filter((row) => row.reason === mayRetry && row.result === "failed").map((row) => row.runId).reverse();
  const partial = Boolean(after) || list.next > 0 || list.cut > 0; // the outage may have more runs than are listed
  const older = () => (list.rows.length < mostRows ? list.older() : go(["runs"], { ...Object.fromEntries(query), after: list.next }));
  return (
    <>
      <Heading title="Runs">
        {of("reason") === mayRetry && (partial
          ? <Later page="RetryButton" runIds={failed} filter={filter} label="Try all runs again" onDone={list.retry} />
          : <Later page="RetryButton" runIds={failed} label={`Try ${counted(failed.length, "run")} again`} onDone={list.retry} />)}
        {after && <a class="button" href={href(["runs"], { ...Object.fromEntries(query), after: "" })}>The newest runs</a>}
      </Heading>
      <form class="filters" aria-label="Filters" onSubmit={(e) => e.preventDefault()}>
        <Select label="Status" value={of("status")} of={statuses} onChange={(v) => change({ status: v })} />
        <Select label="What" value={of("type")} of={types} onChange={(v) => change({ type: v })} />
        <Select label="Since" value={of("since")} of={ages} onChange={(v) => change({ since: v })} />
        {text("Town", "town")}
        {text("Actor", "actor")}
        {text("Reason", "reason", (v) => v.toUpperCase())}
        {text("Id", "id")}
      </form>
      <RunTable list={list} filtered={filtered || after} />
      {list.next > 0 && (
        <p class="actions">
          <button type="button" disabled={list.loading} onClick={older}>Older runs</button>
          {list.searchedTo && filtered && <span class="soft">Searched back to <Time at={list.searchedTo} /> {zone}</span>}
        </p>
      )}
      {list.cut > 0 && <p class="soft">{counted(list.cut, "older run was", "older runs were")} left out of this list to keep it quick. Reload the page, or narrow the filters, to see more.</p>}
    </>
  );
}
