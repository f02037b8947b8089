import { useEffect, useRef, useState } from "preact/hooks";
import { eventTones } from "../../../../../../client/js/contract.gen.mjs";
import { Command, Copy, Dialog, download, useAttempt } from "../actions.jsx";
import { Awaited } from "../away.jsx";
import { difference } from "../diff.js";
import { EventList } from "../eventlist.js";
import { eventsOf, feed } from "../feed.js";
import { useLoad, useSoon } from "../load.js";
import { go, href } from "../route.js";
import { ended, inDoubt, mayRetry } from "../rows.js";
import { nameOf } from "../runtable.jsx";
import { actor, ask, can, session } from "../session.js";
import { quoted } from "../shell.js";
import { useStore } from "../store.js";
import { Reason, Said, Short, Status, Time, count, duration, visible, visibleJSON, zone } from "../text.jsx";
import { timelineOf } from "../timeline.js";
import { Asking, Heading, Menu, Trouble } from "../ui.jsx";
import { Checks } from "./checks.jsx";
import { Changes } from "./difference.jsx";
import { RetryButton } from "./retry.jsx";

/** The events of a run, live until it has ended. run is a load of it: its town is the one to listen to. */
function useEvents(runId, run) {
  const { epoch } = useStore(session);
  const [view, setView] = useState({ events: [], error: null, loading: true });
  const list = useRef(null);
  const show = useSoon(() => {
    const { events, error, loading } = list.current;
    setView({ events: [...events], error, loading });
  }, 100);
  const listens = run.data && !ended(run.data);
  const { appendedBy, started } = run.data?.metadata ?? {};
  const townId = appendedBy ? undefined : started?.townId; // another producer's run may claim any town
  useEffect(() => {
    if (list.current?.runId !== runId) list.current = new EventList(runId, ask);
    const l = list.current;
    const off = listens ? feed.listen((commits, lost) => {
      const mine = eventsOf(commits).filter((e) => e.runId === runId);
      if (mine.length > 0) l.add(mine).then(show);
      if (lost) l.catchUp().then(show);
    }, townId) : undefined;
    l.catchUp().then(show);
    return off;
  }, [runId, epoch, listens, townId]);
  return { ...view, older: () => list.current.older().then(show), retry: () => list.current.catchUp().then(show) };
}

export function Run({ runId }) {
  const run = useLoad(() => ask("run.get", { runId }), [runId]);
  const events = useEvents(runId, run);
  const last = events.events.at(-1)?.runSeq ?? 0;
  const behind = run.data && last > run.data.lastEventSeq;
  const soon = useSoon(run.reload, 300);
  useEffect(() => { if (behind) soon(); }, [last, run.data]);
  const [cancelling, setCancelling] = useState(false);
  const [problem, attempt] = useAttempt();
  const attempted = (action) => () => attempt(action);
  const pending = run.data?.status === "RUNNING" && (run.data.steps ?? []).some((step) => step.stepId === "apply" && step.status === "RUNNING");
  const waits = pending || run.data?.status === "PENDING" || run.data?.status === "PAUSED" && run.data.substatus !== "DRAINING";
  const { appendedBy, ...metadata } = run.data?.metadata ?? {};
  const { signal, ...asked } = metadata.started ?? {};
  const started = { ...asked, signal: appendedBy ? undefined : signal }; // a producer's run is no signal, nor a handoff,
  const outcome = (!appendedBy && metadata.outcome) || {}; // whatever its events claim
  const { world } = session.get();
  const toWorld = world === "main" ? "" : ` --world ${world}`;
  return (
    <>
      <Heading title={<>Run <Short id={runId} /></>}>
        {run.data && (
          <>
            <Menu label="Copy">
              <Copy label="as handoffctl" text={`handoffctl${toWorld} run get ${quoted(runId)}`} />
              <Copy label="as nats request" text={`nats request worldengine.v1.${world}.run.get ${quoted(JSON.stringify({ runId }))}`} />
              <Copy label="as JSON" text={attempted(async () => JSON.stringify({ run: run.data, events: await everyEvent(runId) }, null, 2))} />
              {outcome.status && <Copy label="as a fixture" text={attempted(() => fixtureOf(runId))} />}
            </Menu>
            {outcome.status && <button type="button" onClick={attempted(async () => download(`fixture-${runId.slice(0, 8)}.json`, await fixtureOf(runId)))}>Save as a fixture</button>}
          </>
        )}
        {waits && can("run.cancel") && <button type="button" onClick={() => setCancelling(true)}>Cancel the run</button>}
        {outcome.reasonCode === mayRetry && <RetryButton runIds={[runId]} label="Try it again" onDone={([made]) => go(["runs", made])} />}
        {outcome.reasonCode === mayRetry && can("run.retry") && <a class="button" href={href(["runs"], { status: "failed", reason: mayRetry, since: "today" })}>All that failed so</a>}
      </Heading>
      {cancelling && (
        <Dialog title="Cancel the run?" danger action="Cancel the run" onClose={() => setCancelling(false)}
          says={pending
            ? "The agent is answered RUN_CANCELLED, and the handoff's key stays free. Where the game may have the command this is refused: look at the game, then use handoffctl run cancel --force."
            : "The agent is answered RUN_CANCELLED. Nothing was judged, and the handoff's key stays free."}
          onDone={async (reason) => { await ask("run.cancel", { runId, reason, actorId: actor() }); run.reload(); }} />
      )}
      <Trouble error={run.error} retry={run.reload} />
      <Trouble error={problem} />
      {run.data && !ended(run.data) && <Awaited id={runId} known={run.data.pluginAbsent} />}
      {run.data && (
        <p class="facts">
          <Status of={outcome.status ?? run.data.status} substatus={run.data.substatus} reason={outcome.reasonCode} />
          <Reason code={outcome.reasonCode} status={outcome.status} />
          <span><Said text={started.command ?? nameOf(started.signal)} most={100} />{started.signal && started.runId && <> run <a href={href(["runs", started.runId])}><Short id={started.runId} /></a></>}</span>
          {started.townId && <span>Town <a href={href(["towns", started.townId])}><Said text={started.townId} most={48} /></a></span>}
          {appendedBy && <span>Appended by <Said text={appendedBy} most={48} /></span>}
          {started.actorId && <span>By <Said text={started.actorId} most={48} /></span>}
          {outcome.resultId && <span>Result <Short id={outcome.resultId} size={12} /></span>}
          <span>Arrived <Time at={run.data.arrivedAt} ms /> {zone} · {ended(run.data) ? <>answered after {duration(run.data.tookMs)}</> : "goes on"}</span>
          {run.data.metadata?.consistency === "INCONSISTENT" && <span class="status bad">inconsistent</span>}
        </p>
      )}
      {started.reason && <p class="soft">Reason: <Said text={started.reason} most={200} /></p>}
      {inDoubt.includes(outcome.reasonCode) && <InDoubt townId={started.townId} toWorld={toWorld} />}
      <Effects runId={runId} run={run.data} outcome={outcome} started={started} events={events.events} />
      <Checks runId={runId} events={events.events} />
      {run.data && !appendedBy && <TimeLine run={run.data} />}
      <Events list={events} said={run.error} />
    </>
  );
}

/** Asks for all events of a run. */
async function everyEvent(runId) {
  const all = [];
  for await (const event of session.get().client.runEvents(runId)) all.push(event);
  return all;
}

/** Returns what handoffctl replay --fresh answers as the run was answered. */
async function fixtureOf(runId) {
  const { fixtures, leftOut } = await ask("run.get", { runId, fixtures: true });
  if (leftOut) throw Object.assign(new Error(`Of this run there is none: ${leftOut}.`), { name: "No fixture" });
  return `[\n${fixtures.map((f) => JSON.stringify(f)).join(",\n")}\n]\n`;
}

/** Returns what differs between two revisions of a town; null if one of them is not kept any more. */
async function changesBetween(townId, ...revisions) {
  try {
    const [a, b] = await Promise.all(revisions.map((revision) => ask("town.get", { townId, revision })));
    return difference(a.snapshot, b.snapshot);
  } catch {
    return null; // the link leads to what is kept
  }
}

/** What the run did to its town, and the first run of a duplicate. */
function Effects({ runId, run, outcome, started, events }) {
  const done = run && ended(run);
  const effect = useLoad(async () => {
    if (!done || !started.townId || !["executed", "failed"].includes(outcome.status)) return null;
    const { revisions } = await ask("town.history", { townId: started.townId, limit: 500 });
    const at = revisions.findIndex((r) => r.runId === runId);
    if (at < 0) return null;
    const [after, before] = [revisions[at].revision, revisions[at + 1]?.revision];
    return { after, before, changes: before && outcome.status === "executed" ? await changesBetween(started.townId, before, after) : null };
  }, [runId, done]);
  const first = useLoad(async () => {
    if (outcome.status !== "duplicate") return null;
    const found = await ask("result.get", { idempotencyKey: run.metadata.planId, townId: started.townId });
    const named = events.find((e) => e.stepId === "duplicate-check" && e.payload)?.payload.duplicateOf;
    return !named || found.result.resultId === named ? found : null;
  }, [runId, outcome.status, events.length > 0]);
  return (
    <>
      {effect.data && (
        <section class="difference">
          <h2>{outcome.status === "executed" ? "What it changed" : "The town after it"}</h2>
          {effect.data.changes && (effect.data.changes.length > 0 ? <Changes of={effect.data.changes} /> : <p class="soft">Nothing of the town's state.</p>)}
          {effect.data.before && outcome.status === "executed"
            ? <a href={href(["towns", started.townId, "history", `${effect.data.before}..${effect.data.after}`])}>Revision {count(effect.data.before)} → {count(effect.data.after)}</a>
            : <a href={href(["towns", started.townId, "history", String(effect.data.after)])}>Revision {count(effect.data.after)}</a>}
        </section>
      )}
      {first.data && <p>The same key was accepted before, by <a href={href(["runs", first.data.runId])}>run <Short id={first.data.runId} /></a> (<Status of={first.data.result.status} />).</p>}
      {first.error && <p class="soft">The first result cannot be read: <Said text={first.error.message} most={200} /></p>}
    </>
  );
}

/** What to do about a command that the game may have applied. */
function InDoubt({ townId, toWorld }) {
  return (
    <section class="notice bad">
      <strong>In doubt: the game may have applied the command.</strong> The key of the handoff is used, and the run cannot be tried again: that might apply it twice.
      <ol>
        <li>Look at the game, and at <a href={href(["towns", townId])}>the town</a>.</li>
        <li>If they differ, put the true state: <Command text={`handoffctl${toWorld} town patch ${quoted(townId)} patch.json`} /></li>
        <li>Acknowledge the <a href={href(["alerts"])}>alert</a>. The agent makes a new proposal.</li>
      </ol>
    </section>
  );
}

/** How often the time line of a run that goes on is drawn again, in milliseconds. */
const drawn = 1000;

/** How a run went on, with a scale: it arrived, waited, was applied, was committed and answered. */
function TimeLine({ run }) {
  const [now, setNow] = useState(Date.now());
  const over = ended(run);
  useEffect(() => {
    const timer = over ? null : setInterval(() => setNow(Date.now()), drawn);
    return () => clearInterval(timer);
  }, [over]);
  const line = timelineOf(run, now);
  if (!line) return null;
  const place = (ms) => `${(ms / line.length) * 100}%`;
  return (
    <section>
      <h2>Time line</h2>
      <ol class="timeline">
        {line.rows.map((row) => (
          <li key={row.name}>
            <span>{row.name}</span>
            <span class="track"><i class={row.to === undefined ? "moment" : `span ${row.tone}`} style={{ left: place(row.from), width: row.to === undefined ? undefined : place(row.to - row.from) }} /></span>
            <span class="soft">{row.name === "Arrived" ? <Time at={run.arrivedAt} ms /> : row.to === undefined ? `after ${duration(row.from)}` : <>{row.open && "for "}{duration(row.to - row.from)}{row.open && " until now"}{row.why && <>, <Said text={row.why} most={32} /></>}</>}</span>
          </li>
        ))}
        <li class="scale soft" aria-hidden="true"><span /><span class="track">{line.ticks.map((ms) => <i key={ms} class={ms > line.length * 0.9 ? "late" : ""} style={{ left: place(ms) }}>{ms === 0 ? "0" : duration(ms)}</i>)}</span><span /></li>
      </ol>
    </section>
  );
}

/** The tone of an event that says of a failure or of a wait; most have none. */
const toneOf = ({ eventType }) => (eventTones[eventType] ? `said-${eventTones[eventType]}` : "");

/** The events of a run. said is the error that the page shows above: it is not repeated. */
function Events({ list, said }) {
  const { events, error, loading, older, retry } = list;
  if (error && said && error.code === said.code && events.length === 0) return null;
  const first = events[0]?.runSeq ?? 1;
  return (
    <section>
      <h2>Events <span class="soft small">{zone}</span></h2>
      <Trouble error={error} retry={retry} />
      {events.length === 0 && <Asking of={{ loading, error }} />}
      {first > 1 && <button type="button" onClick={older}>Older events ({count(first - 1)})</button>}
      <ol class="events" start={first}>
        {events.map((e) => (
          <li key={e.runSeq} value={e.runSeq}>
            <details>
              <summary data-row>
                <span class="number soft">{e.runSeq}</span> <span class={toneOf(e)}><Said text={e.eventType} most={48} /></span>{" "}
                <span class="soft"><Said text={e.stepId ?? ""} most={48} />{e.logicalAttemptId > 1 && ` attempt ${e.logicalAttemptId}`}{e.appendedBy && <> by <Said text={e.appendedBy} most={24} /></>}</span> <span class="soft when"><Time at={e.persistedAt} ms /></span>
              </summary>
              <pre tabIndex={0}>{visibleJSON(e.payload ?? {})}</pre>
            </details>
          </li>
        ))}
      </ol>
    </section>
  );
}
