import { useMemo, useState } from "preact/hooks";
import { useLoad, useOften } from "./load.js";
import { Plot } from "./plot.jsx";
import { inAddress, rangeOf, samplesFor, spans, wholeMinutes, within } from "./range.js";
import { href, route, setQuery } from "./route.js";
import { ask } from "./session.js";
import { useStore } from "./store.js";
import { Time, count, duration, zone } from "./text.jsx";
import { Trouble } from "./ui.jsx";

const outcomes = [["executed", "good"], ["failed", "bad"], ["rejected", "refused"], ["stale", "wait"], ["duplicate", "calm"], ["cancelled", "calm"]];

/** How often the samples are asked for while the page is looked at. */
const again = 60_000;

/** What has happened in the last hour or day, or in the range of time of the address, in a town or in all. */
export function Graphs({ townId }) {
  const { query } = useStore(route);
  const span = query.get("span") in spans ? query.get("span") : "hour";
  const { from, to } = rangeOf(query);
  const zoomed = from !== undefined;
  const list = useLoad(() => ask("world.samples", { townId, ...samplesFor({ from }, span, Date.now()) }), [townId, span, from], "samples");
  useOften(list.reload, again);
  const shown = useMemo(() => list.data && within(list.data.samples, list.data.stepMs, { from, to }), [list.data, from, to]);
  return (
    <section class="graphs">
      <div class="heading">
        <h2>{zoomed ? <><Time at={from} /> – {to === undefined ? "now" : <Time at={to} />} {zone}</> : `The last ${span}`}</h2>
        <div class="actions">
          {zoomed && <a href={href(["runs"], { town: townId, ...inAddress({ from, to }) })}>Runs of this time</a>}
          {zoomed ? <button type="button" onClick={() => setQuery(inAddress())}>Zoom out</button>
            : Object.keys(spans).map((s) => <button key={s} type="button" aria-pressed={s === span} onClick={() => setQuery({ span: s === "hour" ? "" : s })}>{s}</button>)}
        </div>
      </div>
      <Trouble error={list.error} retry={list.reload} />
      {shown?.length === 0 && <p class="soft">The graphs reach back a day; this time is not in it.</p>}
      {shown?.length > 0 && <Figures samples={shown} all={zoomed ? {} : list.data} stepMs={list.data.stepMs} />}
    </section>
  );
}

const decimal = new Intl.NumberFormat(undefined, { maximumFractionDigits: 1 });
const short = new Intl.NumberFormat(undefined, { notation: "compact" });
const timeOf = (ms) => (ms === 0 ? "0" : ms >= 1000 ? `${decimal.format(ms / 1000)} s` : `${decimal.format(ms)} ms`);
const sum = (numbers) => numbers.reduce((a, b) => a + b, 0);
const most = (numbers) => Math.max(0, ...numbers.filter((n) => n != null));

/** The three graphs, with one pointer: what each has at the same time is said beside its title. */
function Figures({ samples, all, stepMs }) {
  const [at, setAt] = useState(null);
  const { times, results, latency, waiting } = useMemo(() => seriesOf(samples, stepMs), [samples, stepMs]);
  const here = at !== null && at < times.length ? at : null;
  const onRange = (a, b) => setQuery({ span: "", ...inAddress(wholeMinutes(a, b)) });
  const common = { times, stepMs, at: here, onAt: setAt, onRange };
  const counts = (i) => results.map(({ tone, name, values }) => [tone, name, i === null ? sum(values) : values[i]])
    .filter(([, , n]) => n > 0).map(([tone, name, n]) => ({ tone, text: `${count(n)} ${name}` }));
  const p = { p50: all.p50Ms, p99: all.p99Ms };
  const times50 = (i) => latency.map(({ tone, name, values }) => [tone, name, i === null ? p[name] ?? (values.some((v) => v != null) ? most(values) : undefined) : values[i]])
    .filter(([, , ms]) => ms != null).map(([tone, name, ms]) => ({ tone, text: `${name} ${i === null && p[name] === undefined ? "up to " : ""}${duration(ms)}` }));
  const waits = (i) => {
    const n = i === null ? most(waiting[0].values) : waiting[0].values[i];
    return [{ tone: "wait", text: n < 0.05 ? "hardly any" : `${i === null ? "up to " : ""}${decimal.format(n)} on average` }];
  };
  return (
    <>
      <div class="figures">
        <Plot title="Handoffs" bars series={results} legend={counts} format={(n) => (Number.isInteger(n) ? short.format(n) : "")} {...common} />
        <Plot title="Time to the answer" series={latency} legend={times50} format={timeOf} {...common} />
        <Plot title="Waiting" series={waiting} legend={waits} format={(n) => short.format(n)} {...common} />
      </div>
      <p class="soft hint">{duration(stepMs)} each, {zone}. Draw over a part of a graph to zoom to its time.</p>
    </>
  );
}

/** The samples as uPlot has them: a list of values for each series, null where there is none. */
function seriesOf(samples, stepMs) {
  const value = (name) => samples.map((s) => s[name] ?? null);
  return {
    times: samples.map((s) => (Date.parse(s.at) + stepMs / 2) / 1000),
    results: outcomes.map(([name, tone]) => ({ name, tone, values: samples.map((s) => s.results[name] ?? 0) })).filter(({ values }) => sum(values) > 0),
    latency: [{ name: "p99", tone: "wait", values: value("p99Ms") }, { name: "p50", tone: "busy", values: value("p50Ms") }],
    waiting: [{ name: "waiting", tone: "wait", values: value("waiting") }],
  };
}
