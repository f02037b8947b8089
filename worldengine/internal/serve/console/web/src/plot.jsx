import { useEffect, useRef, useState } from "preact/hooks";
import uPlot from "uplot";
import { clock } from "./text.jsx";

const height = 112;
const font = "11px system-ui, sans-serif";
const dark = matchMedia("(prefers-color-scheme: dark)");
const hourAndMinute = (s) => clock(s * 1000).slice(0, 5);

/** Calls render when the scheme of colours is another one: a canvas keeps the colours that it was drawn in. */
function useScheme() {
  const [, render] = useState(0);
  useEffect(() => {
    const changed = () => render((n) => n + 1);
    dark.addEventListener("change", changed);
    return () => dark.removeEventListener("change", changed);
  }, []);
  return dark.matches;
}

/**
 * A graph over time. times are the middles of its samples in seconds, and stepMs is how long each lasts. series have
 * {name, tone, values}; with bars they stand on each other. at is the sample under the pointer, of all graphs side by
 * side: onAt gets another one, and onRange the part that was chosen, in milliseconds. legend(i) returns a text for
 * each series, for a sample or for all; format writes a value of the axis.
 */
export function Plot({ title, times, stepMs, series, bars, at, onAt, onRange, legend, format }) {
  const place = useRef(null);
  const plot = useRef(null);
  const scheme = useScheme();
  const parts = legend(at);
  useEffect(() => {
    const box = place.current; // which the observer may outlive
    const u = new uPlot(optionsOf(box, { times, stepMs, series, bars, onAt, onRange, format }), dataOf(times, series, bars), box);
    plot.current = u;
    const sized = new ResizeObserver(() => { if (box.isConnected && box.clientWidth !== u.width) u.setSize({ width: box.clientWidth, height }); });
    sized.observe(box);
    return () => { sized.disconnect(); u.destroy(); };
  }, [times, series, scheme]);
  useEffect(() => {
    const u = plot.current;
    if (u.cursor.idx === at) return;
    u.setCursor(at === null ? { left: -10, top: -10 } : { left: u.valToPos(times[at], "x"), top: 0 }, false);
  }, [at, times]);
  const keys = useKeys({ times, stepMs, at, onAt, onRange, plot });
  return (
    <figure>
      <figcaption>
        <strong>{title}</strong>{at !== null && <> {hourAndMinute(times[at] - stepMs / 2000)}</>}{" "}
        {parts.map(({ tone, text }) => <span key={text} class={`status ${tone}`}><span>{text} </span></span>)}
      </figcaption>
      <div ref={place} class="plot" tabIndex={0} role="slider" aria-label={`${title}: arrow keys for the values, Shift to choose a range, Enter to zoom`}
        aria-valuemin={0} aria-valuemax={times.length - 1} aria-valuenow={at ?? times.length - 1}
        aria-valuetext={`${hourAndMinute(times[at ?? times.length - 1])}: ${parts.map((p) => p.text).join(", ") || "none"}`} {...keys}>
        {series.map(({ tone }) => <i key={tone} class={`tone status ${tone}`} />)}
      </div>
    </figure>
  );
}

/** The values by keyboard: arrows, Home and End move; with Shift they choose a range; Enter zooms to it. */
function useKeys({ times, stepMs, at, onAt, onRange, plot }) {
  const start = useRef(null);
  const step = stepMs / 1000;
  const move = (to, choosing) => {
    const next = Math.min(times.length - 1, Math.max(0, to));
    start.current = choosing ? start.current ?? at ?? next : null;
    const [a, b] = [start.current ?? next, next].sort((x, y) => x - y);
    const left = plot.current.valToPos(times[a] - step / 2, "x");
    const width = choosing ? plot.current.valToPos(times[b] + step / 2, "x") - left : 0;
    plot.current.setSelect({ left, width, top: 0, height: plot.current.over.clientHeight }, false);
    onAt(next);
  };
  const last = times.length - 1;
  const places = { ArrowLeft: (at ?? last + 1) - 1, ArrowRight: (at ?? last - 1) + 1, Home: 0, End: last };
  return {
    onKeyDown: (e) => {
      if (e.key in places) {
        e.preventDefault();
        move(places[e.key], e.shiftKey);
      } else if (e.key === "Enter" && at !== null) {
        const [a, b] = [start.current ?? at, at].sort((x, y) => x - y);
        onRange((times[a] - step / 2) * 1000, (times[b] + step / 2) * 1000);
      }
    },
    onBlur: () => { start.current = null; onAt(null); },
  };
}

/** Bars stand on each other: the tallest are drawn first, with what stands below them in front. */
function dataOf(times, series, bars) {
  if (!bars) return [times, ...series.map((s) => s.values)];
  let below = times.map(() => 0);
  const stacked = series.map((s) => (below = below.map((sum, i) => sum + (s.values[i] ?? 0))));
  return [times, ...stacked.reverse()];
}

/** The places of values that no line reaches, since they have no neighbour. */
const alone = (values) => values.flatMap((v, i) => (v != null && values[i - 1] == null && values[i + 1] == null ? [i] : []));

function optionsOf(place, { times, stepMs, series, bars, onAt, onRange, format }) {
  const half = stepMs / 2000;
  const colour = (tone) => getComputedStyle(place.querySelector(`.tone.${tone}`)).color;
  const style = getComputedStyle(place);
  const [soft, line] = [style.color, style.borderColor];
  const drawn = series.map(({ tone }) => (bars
    ? { fill: colour(tone), width: 0, paths: uPlot.paths.bars({ size: [0.85, 24, 1] }), points: { show: false } }
    : { stroke: colour(tone), width: 1.5, points: { show: true, size: 4, fill: colour(tone), filter: (u, i) => alone(u.data[i]) } }));
  return {
    width: place.clientWidth, height, legend: { show: false }, padding: [6, 16, 0, 0],
    cursor: { y: false, points: { show: false }, drag: { x: true, y: false, setScale: false } },
    scales: {
      x: { range: () => [times[0] - half, times.at(-1) + half] },
      y: { range: (_, __, max) => [0, max > 0 ? max * 1.06 : 1] },
    },
    axes: [
      { stroke: soft, font, size: 20, gap: 2, space: 48, grid: { show: false }, ticks: { stroke: line, size: 3 }, values: (_, all) => all.map(hourAndMinute) },
      { stroke: soft, font, size: 44, gap: 3, space: 26, grid: { stroke: line, width: 1 }, ticks: { show: false }, values: (_, all) => all.map(format) },
    ],
    series: [{}, ...(bars ? drawn.reverse() : drawn)],
    hooks: {
      setCursor: [(u) => onAt(u.cursor.idx ?? null)],
      setSelect: [(u) => {
        const { left, width } = u.select;
        if (width < 4) return;
        u.setSelect({ left: 0, width: 0, top: 0, height: 0 }, false);
        onRange(u.posToVal(left, "x") * 1000, u.posToVal(left + width, "x") * 1000);
      }],
    },
  };
}
