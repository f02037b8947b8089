import { useEffect, useRef, useState } from "preact/hooks";
import { difference } from "../diff.js";
import { useLoad } from "../load.js";
import { href, replace } from "../route.js";
import { ask } from "../session.js";
import { What, causes } from "../runtable.jsx";
import { Revisions as Kept, pageSize } from "../revisions.js";
import { Said, Short, Status, Time, count, zone } from "../text.jsx";
import { Asking, Empty, Heading, Trouble } from "../ui.jsx";
import { Changes } from "./difference.jsx";
import { useTownChanges } from "./town.jsx";

/** "17..21" or "21": the revisions that are compared. */
function chosen(range, revisions) {
  const [a, b] = (range ?? "").split("..").map(Number);
  const newest = revisions[0]?.revision;
  const to = b || a || newest;
  const from = b ? a : revisions.find((r) => r.revision < to)?.revision ?? to;
  return { from: Math.min(from, to), to: Math.max(from, to) };
}

export function History({ townId, range }) {
  const first = useLoad(() => ask("town.history", { townId, limit: pageSize }), [townId]);
  const kept = useRef(new Kept());
  const [{ revisions, next, error }, setView] = useState({ revisions: [], next: 0, error: null });
  const show = (why = null) => setView({ revisions: kept.current.list, next: kept.current.next, error: why });
  useEffect(() => { if (first.data) { kept.current.newest(first.data); show(); } }, [first.data]);
  useTownChanges(townId, first.reload);
  const more = async () => {
    const before = kept.current.next;
    try {
      kept.current.older(before, await ask("town.history", { townId, before, limit: pageSize }));
      show();
    } catch (why) {
      show(why);
    }
  };
  const { from, to } = chosen(range, revisions);
  const select = (a, b) => replace(["towns", townId, "history", `${Math.min(a, b)}..${Math.max(a, b)}`]);
  return (
    <>
      <Heading title={<>History of <Said text={townId} most={80} /></>}><a class="button" href={href(["towns", townId])}>The town now</a></Heading>
      <Trouble error={first.error} retry={first.reload} />
      <Asking of={first} />
      {first.data?.revisions.length === 0 && <Empty>Nothing is kept of this town's history.</Empty>}
      {revisions.length > 0 && (
        <>
          <Sliders revisions={revisions} from={from} to={to} select={select} />
          {revisions.find((r) => r.revision === to)?.cause === "remove"
            ? <div class="notice calm">Revision {count(to)} removed the town: it left no state. Choose an earlier one.</div>
            : <Difference townId={townId} from={from} to={to} />}
          <Revisions townId={townId} revisions={revisions} from={from} to={to} />
        </>
      )}
      <Trouble error={error} retry={more} />
      {next > 0 && <button type="button" onClick={more}>Older revisions</button>}
    </>
  );
}

function Sliders({ revisions, from, to, select }) {
  const last = revisions.length - 1;
  const at = (revision) => { const i = revisions.findIndex((r) => r.revision <= revision); return last - (i < 0 ? last : i); };
  const of = (position) => revisions[last - position].revision;
  if (last < 1) return null;
  return (
    <div class="sliders">
      {[["From", from, (v) => select(of(v), to)], ["To", to, (v) => select(from, of(v))]].map(([label, revision, move]) => (
        <label key={label}>{label} <input type="range" min="0" max={last} value={at(revision)} aria-valuetext={`revision ${revision}`} onInput={(e) => move(Number(e.target.value))} /> <output>{count(revision)}</output></label>
      ))}
    </div>
  );
}

function Difference({ townId, from, to }) {
  const states = useLoad(() => Promise.all([from, to].map((revision) => ask("town.get", { townId, revision }))), [townId, from, to]);
  if (states.error) {
    const gone = states.error.code === "REVISION_GONE";
    return gone ? <div class="notice wait">One of the two revisions is no longer kept: the log keeps a bounded history of each town. Choose newer ones.</div> : <Trouble error={states.error} retry={states.reload} />;
  }
  if (!states.data) return <p class="soft">Comparing…</p>;
  const [a, b] = states.data;
  const changes = difference(a.snapshot, b.snapshot);
  return (
    <section class="difference" aria-live="polite">
      <h2>Revision {count(from)} → {count(to)}</h2>
      {changes.length === 0 && <p class="soft">The two states are the same.</p>}
      <Changes of={changes} />
    </section>
  );
}

function Revisions({ townId, revisions, from, to }) {
  return (
    <table class="rows cards">
      <caption class="unseen">Revisions</caption>
      <thead><tr><th scope="col">Revision</th><th scope="col">Stored, {zone}</th><th scope="col">What</th><th scope="col" class="wide">Who</th><th scope="col">Outcome</th><th scope="col" class="number">Day</th><th scope="col" class="wide">Run</th></tr></thead>
      <tbody>
        {revisions.map((r) => (
          <tr key={r.revision} class={r.revision === from || r.revision === to ? "chosen" : ""}>
            <td class="id"><a data-row href={href(["towns", townId, "history", String(r.revision)])} aria-current={r.revision === to ? "true" : undefined}>{count(r.revision)}</a></td>
            <td class="at"><Time at={r.at} /></td>
            <td class="what"><What row={{ ...r, townId }} />{r.command && !r.status && <span class="soft"> ({causes[r.cause] ?? r.cause})</span>}</td>
            <td class="wide who"><Said text={r.actorId} most={24} /></td>
            <td class="end">{r.status ? <Status of={r.status} reason={r.reasonCode} /> : <span class="status calm">changed</span>}</td>
            <td class="number of day">{count(r.epoch)}</td>
            <td class="wide">{r.runId && <a href={href(["runs", r.runId])}><Short id={r.runId} /></a>}</td>
          </tr>
        ))}
      </tbody>
    </table>
  );
}
