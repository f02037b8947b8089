import { useEffect } from "preact/hooks";
import { useKept } from "./kept.js";
import { useLoad } from "./load.js";
import { ask, session } from "./session.js";
import { Time, count, duration, zone } from "./text.jsx";
import { Trouble } from "./ui.jsx";

/** The spans of time, as world.samples is asked for them. */
const spans = { hour: { minutes: 60, points: 60 }, day: { minutes: 1440, points: 96 } };
const outcomes = [["executed", "good"], ["failed", "bad"], ["rejected", "bad"], ["stale", "wait"], ["duplicate", "calm"], ["cancelled", "calm"]];
const width = 240;
const height = 60;

/** How often the samples are asked for while the page is looked at. */
const again = 60_000;

/** What has happened in the last hour or day, in a town or in all. */
export function Graphs({ townId }) {
  const [span, setSpan] = useKept("span", "hour");
  const list = useLoad(() => ask("world.samples", { townId, ...spans[span] }), [townId, span], "samples");
  useEffect(() => {
    const timer = setInterval(() => { if (!document.hidden && session.get().link === "live") list.reload(); }, again);
    return () => clearInterval(timer);
  }, [list.reload]);
  const { samples = [], stepMs } = list.data ?? {};
  return (
    <section class="graphs">
      <div class="heading">
        <h2>The last {span}</h2>
        <div class="actions">{Object.keys(spans).map((s) => <button key={s} type="button" aria-pressed={s === span} onClick={() => setSpan(s)}>{s}</button>)}</div>
      </div>
      <Trouble error={list.error} retry={list.reload} />
      {samples.length > 0 && (
        <>
          <div class="figures"><Outcomes of={samples} /><Latency of={samples} all={list.data} /><Waiting of={samples} /></div>
          <p class="span soft"><Time at={samples[0].at} /><span>{duration(stepMs)} each, {zone}</span><span>now</span></p>
        </>
      )}
    </section>
  );
}

/** A graph with its caption, which says in words what it shows. */
function Graph({ title, says, children }) {
  return (
    <figure>
      <figcaption><strong>{title}</strong> <span class="soft">{says}</span></figcaption>
      <svg viewBox={`0 0 ${width} ${height}`} preserveAspectRatio="none" aria-hidden="true">{children}</svg>
    </figure>
  );
}

/** The handoffs that ended, by outcome, as bars. */
function Outcomes({ of: samples }) {
  const total = (name) => samples.reduce((sum, s) => sum + (s.results[name] ?? 0), 0);
  const known = outcomes.filter(([name]) => total(name) > 0);
  const most = Math.max(1, ...samples.map((s) => Object.values(s.results).reduce((a, b) => a + b, 0)));
  const step = width / samples.length;
  const bars = samples.flatMap((s, i) => {
    let y = height;
    return known.filter(([name]) => s.results[name]).map(([name, tone]) => {
      const tall = (s.results[name] / most) * height;
      y -= tall;
      return <rect key={`${s.at} ${name}`} class={tone} x={i * step + step * 0.1} y={y} width={step * 0.8} height={tall} />;
    });
  });
  const says = known.map(([name]) => `${count(total(name))} ${name}`).join(", ") || "none";
  return <Graph title="Handoffs" says={says}>{bars}</Graph>;
}

/** The points of a line, in parts where there are no values between. */
function lines(samples, value, most) {
  const step = width / samples.length;
  const parts = [[]];
  samples.forEach((s, i) => {
    const v = value(s);
    if (v === undefined) parts.push([]);
    else parts.at(-1).push(`${(i + 0.1) * step},${height - 1 - (v / most) * (height - 2)}`, `${(i + 0.9) * step},${height - 1 - (v / most) * (height - 2)}`);
  });
  return parts.filter((part) => part.length > 0).map((part) => part.join(" "));
}

const Line = ({ points, tone }) => points.map((p) => <polyline key={p} class={tone} points={p} />);

/** How long handoffs took from their arrival: half of all at most, and 99 in 100. */
function Latency({ of: samples, all }) {
  const most = Math.max(1, ...samples.map((s) => s.p99Ms ?? 0));
  const known = all.p50Ms !== undefined;
  return (
    <Graph title="Time to the answer" says={known ? `p50 ${duration(all.p50Ms)}, p99 ${duration(all.p99Ms)}` : "none"}>
      <Line tone="wait" points={lines(samples, (s) => s.p99Ms, most)} /><Line tone="busy" points={lines(samples, (s) => s.p50Ms, most)} />
    </Graph>
  );
}

const decimal = new Intl.NumberFormat(undefined, { maximumFractionDigits: 1 });

/** How many handoffs waited or were being applied. */
function Waiting({ of: samples }) {
  const peak = Math.max(...samples.map((s) => s.waiting));
  return (
    <Graph title="Waiting" says={peak < 0.05 ? "hardly any" : `up to ${decimal.format(peak)} on average`}>
      <Line tone="wait" points={lines(samples, (s) => s.waiting, Math.max(1, peak))} />
    </Graph>
  );
}
