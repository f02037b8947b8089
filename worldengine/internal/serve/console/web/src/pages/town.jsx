import { useEffect, useRef, useState } from "preact/hooks";
import { Copy, download } from "../actions.jsx";
import { useApprovals } from "../approvals.js";
import { Awaited } from "../away.jsx";
import { feed } from "../feed.js";
import { Graphs } from "../graphs.jsx";
import { eachOf, useLoad, useSoon } from "../load.js";
import { inAddress, inRequest, rangeOf } from "../range.js";
import { href, route } from "../route.js";
import { RunTable, appliers } from "../runtable.jsx";
import { ask, can } from "../session.js";
import { useStore } from "../store.js";
import { Said, Short, Time, count, counted, zone } from "../text.jsx";
import { Asking, Heading, Trouble } from "../ui.jsx";
import { useRuns } from "../useruns.js";
import { Paused, changesIn } from "./overview.jsx";
import { PauseButton } from "./pause.jsx";
import { RemoveButton } from "./remove.jsx";

/** Calls work when there was a commit about a town, or about the world. */
export function useTownChanges(townId, work) {
  const soon = useSoon(work, 300);
  useEffect(() => feed.listen(soon, townId), [townId]);
}

export function Town({ townId }) {
  const town = useLoad(() => ask("town.get", { townId }), [townId]);
  const control = useLoad(() => ask("control.get", { townId }), [townId]);
  const states = useRef(new Map());
  const past = useLoad(() => pastOf(townId, states.current), [townId]);
  const memory = useLoad(() => memoryOf(townId), [townId]);
  const range = rangeOf(useStore(route).query);
  const runs = useRuns({ townId, ...inRequest(range) }, 30);
  const approvals = useApprovals(townId);
  useTownChanges(townId, () => { town.reload(); control.reload(); past.reload(); memory.reload(); });
  const s = town.data?.snapshot;
  return (
    <>
      <Heading title={<Said text={townId} most={120} />}>
        <a class="button" href={href(["towns", townId, "history"])}>History</a>
        {s && can("handoff") && <a class="button" href={href(["send"], { town: townId })}>Propose</a>}
        {s && <PauseButton control={control} townId={townId} />}
        {s && <button type="button" onClick={() => download(`${townId.replace(/[^\w-]/g, "_").slice(0, 64)}.json`, `${JSON.stringify([s], null, 2)}\n`)}>Export</button>}
        {s && <RemoveButton townId={townId} />}
      </Heading>
      {town.error?.code === "UNKNOWN_TOWN" ? <Unknown townId={townId} error={town.error} retry={town.reload} /> : <Trouble error={town.error} retry={town.reload} />}
      <Asking of={town} />
      <Paused control={control.data} what="The town" />
      <Waiting waiting={approvals.data?.waiting.length} more={approvals.data?.more} townId={townId} />
      <Awaited id={townId} known={town.data?.pluginAbsent} />
      {town.data && <Facts town={town.data} />}
      {s && (
        <div class="columns">
          <section><h2>Pressure</h2><Pressures now={s.pressure} past={past.data?.pressures ?? []} /></section>
          <section><h2>Projects</h2><Projects projects={s.projects} /></section>
          <section><h2>Mission</h2><Mission snapshot={s} /></section>
        </div>
      )}
      {memory.data && <Chronicle memory={memory.data} />}
      {!(town.error && !town.data) && (
        <>
          <Graphs townId={townId} />
          <h2>Activity</h2>
          <RunTable list={runs} town={townId} changes={changesIn(past.data?.changes ?? [], range)} />
        </>
      )}
      {runs.rows.length >= 30 && <a href={href(["runs"], { town: townId, ...inAddress(range) })}>All runs of the town</a>}
    </>
  );
}

/** Says of a town that is unknown when it was removed, by whom and at which day, as long as its history is kept. */
function Unknown({ townId, error, retry }) {
  const past = useLoad(async () => (await ask("town.history", { townId, limit: 1 })).revisions[0], [townId]);
  const last = past.data;
  if (past.loading && !last) return null;
  if (last?.cause !== "remove") return <Trouble error={error} retry={retry} />;
  return (
    <div class="notice calm" role="alert">
      <strong>This town was removed</strong> at <Time at={last.at} /> {zone}{last.actorId && <> by <Said text={last.actorId} most={48} /></>}, at day {count(last.epoch)}.
      {" "}Handoffs for it are rejected. Its <a href={href(["towns", townId, "history"])}>history</a> and its <a href={href(["runs"], { town: townId })}>runs</a> stay as long as the log keeps them.
    </div>
  );
}

/** The proposals that wait for a person, and the page that decides about them. */
function Waiting({ waiting, more, townId }) {
  if (!waiting) return null;
  return (
    <p class="notice wait">
      {more ? "More than " : null}{counted(waiting, "proposal waits", "proposals wait")} for a person's approval: <a href={href(["approvals"], { town: townId })}>Approvals</a>
    </p>
  );
}

const memoryOf = (townId) => ask("memory.get", {
  type: "world-memory-request.v1", schemaVersion: 1,
  scope: { townId, factionId: null, chronicleLimit: 5, historyLimit: 1 },
});

/** The last things that were executed, as a villager would tell them. */
function Chronicle({ memory }) {
  const { chronicleCount, executionCounts } = memory.townSummary;
  const counts = Object.entries(executionCounts).filter(([, n]) => n > 0);
  return (
    <section>
      <h2>Chronicle</h2>
      {chronicleCount === 0 && <p class="soft">Nothing has been executed yet.</p>}
      <ul class="plain">
        {memory.recentChronicle.map((e) => (
          <li key={e.sourceRecordId}><span class="soft">Day {count(e.at)}</span> <a href={href(["runs", e.sourceRecordId])}><Said text={e.message} /></a></li>
        ))}
      </ul>
      {counts.length > 0 && <p class="soft">Results that the log keeps: {counts.map(([status, n]) => `${count(n)} ${status}`).join(", ")}</p>}
    </section>
  );
}

function Facts({ town }) {
  return (
    <p class="facts">
      <span>Day <strong>{count(town.decisionEpoch)}</strong></span>
      <span>Revision {count(town.revision)}</span>
      <span>Applied by {appliers[town.apply] ?? town.apply}</span>
      <span>Hash <Short id={town.snapshotHash} size={12} /> <span class="small"><Copy text={town.snapshotHash} label="Copy" /></span></span>
      {town.pendingRunId && <span>Being applied: <a href={href(["runs", town.pendingRunId])}><Short id={town.pendingRunId} /></a></span>}
    </p>
  );
}

/** How many of the last revisions a trend shows, and among how many changes without a run are looked for. */
const trendOf = 12;
const changesOf = 30;

/**
 * Returns the pressures of the last revisions, the oldest first, and the changes that no run has made. known has the
 * pressures that were asked for before.
 */
async function pastOf(townId, known) {
  const { revisions } = await ask("town.history", { townId, limit: changesOf });
  const trend = revisions.slice(0, trendOf).map((r) => r.revision);
  for (const revision of known.keys()) if (!trend.includes(revision)) known.delete(revision);
  await eachOf(trend.filter((revision) => !known.has(revision)), async (revision) => {
    try {
      known.set(revision, (await ask("town.get", { townId, revision })).snapshot.pressure);
    } catch { /* it has left the history meanwhile */ }
  });
  return { pressures: trend.map((revision) => known.get(revision)).filter(Boolean).reverse(), changes: revisions.filter((r) => !r.runId) };
}

function Pressures({ now, past }) {
  return (
    <dl class="bars">
      {["threat", "scarcity", "dread", "hope"].map((name) => {
        const line = past.map((p) => p[name]);
        const before = line.length > 1 ? line[line.length - 2] : now[name];
        const change = now[name] - before;
        return (
          <div key={name} class={name}>
            <dt>{name}</dt>
            <dd>
              <meter aria-label={name} min="0" max="1" value={now[name]} />
              <span class="number">{now[name].toFixed(2)}</span>
              <Trend line={line} />
              <span class="change">{Math.abs(change) < 0.00005 ? null : `${change > 0 ? "+" : "−"}${Math.abs(change).toFixed(2)}`}</span>
            </dd>
          </div>
        );
      })}
    </dl>
  );
}

function Trend({ line }) {
  if (line.length < 2) return <svg class="trend" aria-hidden="true" />;
  const points = line.map((v, i) => `${(i / (line.length - 1)) * 58 + 1},${19 - v * 18}`).join(" ");
  return <svg class="trend" viewBox="0 0 60 20" aria-hidden="true"><polyline points={points} /></svg>;
}

function Projects({ projects }) {
  if (projects.length === 0) return <p class="soft">None.</p>;
  return (
    <ul class="plain projects">
      {projects.slice(0, 200).map((p) => (
        <li key={p.id}>
          <div><Said text={p.name || p.id} most={48} /> <span class={`status ${{ complete: "good", blocked: "bad", active: "busy" }[p.status] ?? "calm"}`}>{p.status}</span></div>
          <progress aria-label={`progress of ${p.id.slice(0, 80)}`} max="1" value={p.progress} /> <span class="number">{Math.round(p.progress * 100)} %</span>
        </li>
      ))}
      {projects.length > 200 && <li class="soft">and {count(projects.length - 200)} more</li>}
    </ul>
  );
}

function Mission({ snapshot }) {
  const [all, setAll] = useState(false);
  const quests = all ? snapshot.sideQuests : snapshot.sideQuests.slice(0, 8);
  return (
    <>
      <p>{snapshot.mission ? <Said text={snapshot.mission.title || snapshot.mission.id} /> : <span class="soft">None accepted.</span>}</p>
      <h3>Side quests</h3>
      {quests.length === 0 && <p class="soft">None.</p>}
      <ul class="plain">{quests.map((q) => <li key={q.id}><Said text={q.title || q.id} /> <code class="soft"><Said text={q.id} most={24} /></code></li>)}</ul>
      {quests.length < snapshot.sideQuests.length && <button type="button" onClick={() => setAll(true)}>All {snapshot.sideQuests.length}</button>}
    </>
  );
}
