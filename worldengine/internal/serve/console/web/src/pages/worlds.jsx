import { useEffect, useState } from "preact/hooks";
import { useLoad, useOften } from "../load.js";
import { href, route } from "../route.js";
import { askOf, listWorlds, session } from "../session.js";
import { useStore } from "../store.js";
import { Said, count, counted, duration, visible } from "../text.jsx";
import { Heading, Menu, Trouble } from "../ui.jsx";

/** How often the worlds, and the last hour of each, are asked for while the page is looked at, in milliseconds. */
const again = 5000;
const lastHourAgain = 60_000;
/** Of how many worlds the last hour is shown. */
const mostHours = 40;
/** From how many worlds on they can be filtered. */
const many = 8;

/** The worlds as they are now: at first as they were when the user signed in. */
function useWorlds() {
  const list = useLoad(listWorlds, []);
  useOften(list.reload, again);
  useEffect(() => { if (list.data) session.set({ worlds: list.data }); }, [list.data]);
  return { worlds: list.data ?? session.get().worlds ?? [], error: list.error, reload: list.reload };
}

const states = { served: ["good", "served"], standby: ["wait", "about to be served"], unserved: ["bad", "not served"] };

/** The world that is shown, and the others: their pages of the same area. */
export function Chooser() {
  const { worlds } = useStore(session);
  const { world, path } = useStore(route);
  return (
    <Menu label={world ? visible(world) : "Worlds"} of="brand chooser" title="Choose another world">
      <nav class="worlds-menu" aria-label="Worlds">
        <a href="#/" aria-current={world ? undefined : "page"}><strong>All worlds</strong></a>
        {(worlds ?? []).map((w) => (
          <a key={w.world} href={href(path.slice(0, 1), {}, w.world)} aria-current={w.world === world ? "page" : undefined}>
            <span class={`status ${states[w.state]?.[0] ?? "calm"}`}><span>{visible(w.world)}</span></span>
          </a>
        ))}
      </nav>
    </Menu>
  );
}

/** All worlds as cards: those that need a person first. */
export function Worlds() {
  const { worlds, error, reload } = useWorlds();
  const [text, setText] = useState("");
  const shown = worlds.filter((w) => w.world.toLowerCase().includes(text.trim().toLowerCase()));
  const away = worlds.filter((w) => w.state !== "served").length;
  return (
    <>
      <Heading title="Worlds">{worlds.length > many && <label class="filter">Filter <input type="search" value={text} onInput={(e) => setText(e.target.value)} /></label>}</Heading>
      <Trouble error={error} retry={reload} />
      <p class="soft" aria-live="polite">{counted(worlds.length, "world")}{away > 0 && `, ${counted(away, "is", "are")} not served`}{text.trim() && `, ${count(shown.length)} shown`}</p>
      <ul class="plain worlds">
        {[...shown].sort((a, b) => urgency(b) - urgency(a)).map((w, i) => <World key={w.world} of={w} hour={i < mostHours} />)}
      </ul>
    </>
  );
}

const urgency = (w) => (w.state === "served" ? (w.alerts > 0 ? 1 : 0) : 2);

function World({ of: w, hour }) {
  const [tone, says] = states[w.state] ?? ["calm", visible(w.state)];
  const figures = [["Towns", w.towns], ["Per minute", w.handoffsPerMinute], ["Waiting", w.waiting], ["Open alerts", w.alerts, w.alerts > 0 && "wait"]];
  return (
    <li class="world">
      <div class="heading"><h2><a data-row href={href([], {}, w.world)}><Said text={w.world} most={64} /></a></h2><span class={`status ${w.paused ? "wait" : tone}`}>{w.paused ? "paused" : says}</span></div>
      {w.why && <p class="soft"><Said text={w.why} most={300} /></p>}
      {w.state === "served" && (
        <dl class="counters">{figures.filter(([, n]) => n !== undefined).map(([name, n, its]) => <div key={name} class={its || ""}><dt>{name}</dt><dd>{count(n)}</dd></div>)}</dl>
      )}
      {w.state === "served" && hour && <LastHour world={w.world} />}
      <Writer of={w.writer} />
    </li>
  );
}

/** The server that serves a world: its host, and the rest of its name. */
function Writer({ of }) {
  if (!of) return null;
  return <p class="soft small" title={visible(of.name)}>Served by <Said text={(of.name || of.id).split(",")[0]} most={40} />, {visible(of.version)}</p>;
}

/** The handoffs of a world in the last hour, as a line without a scale: the overview has one. */
function LastHour({ world }) {
  const { data, reload } = useLoad(() => askOf(world, "world.samples", { minutes: 60, points: 60 }).catch(() => null), [world]);
  useOften(reload, lastHourAgain);
  if (!data) return null;
  const totals = data.samples.map((s) => Object.values(s.results).reduce((a, b) => a + b, 0));
  const most = Math.max(1, ...totals);
  const points = totals.map((n, i) => `${(i / Math.max(1, totals.length - 1)) * 200},${23 - (n / most) * 22}`).join(" ");
  const all = totals.reduce((a, b) => a + b, 0);
  return (
    <>
      <svg class="trend hour" viewBox="0 0 200 24" preserveAspectRatio="none" aria-hidden="true"><polyline points={points} /></svg>
      <p class="soft small">{counted(all, "handoff")} in the last hour{data.p99Ms !== undefined && `, p99 ${duration(data.p99Ms)}`}</p>
    </>
  );
}

/** Says of the world of the address why it is not shown, and where it is served. */
export function Unserved() {
  const { worlds, error, reload } = useWorlds();
  const { missing } = useStore(session);
  const { world } = useStore(route);
  const known = worlds.find((w) => w.world === world);
  if (known?.state === "served" && !missing) return <p class="soft asking" role="status">Asking…</p>;
  return (
    <>
      <Heading title={<>World <Said text={world} most={64} /></>}><a class="button" href="#/">All worlds</a></Heading>
      {!known && <div class="notice wait"><strong>There is no world of this name</strong>, or this user may not use it.</div>}
      {known && (
        <div class="notice bad">
          <strong>{known.state === "served" ? "The world does not answer." : `The world is ${states[known.state]?.[1] ?? visible(known.state)}.`}</strong> <Said text={known.why ?? ""} most={400} />
          <Writer of={known.writer} />
          <p class="soft">The page goes on trying.</p>
        </div>
      )}
      {known?.state === "served" && <Trouble error={missing} />}
      <Trouble error={error} retry={reload} />
    </>
  );
}
