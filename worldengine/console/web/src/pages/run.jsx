import { useEffect, useRef, useState } from "preact/hooks";
import { eventTones } from "../../../../client/js/contract.gen.mjs";
import { Awaited } from "../away.jsx";
import { EventList } from "../eventlist.js";
import { eventsOf, feed } from "../feed.js";
import { useLoad, useSoon } from "../load.js";
import { go, href } from "../route.js";
import { ended, mayRetry } from "../rows.js";
import { nameOf } from "../runtable.jsx";
import { ask, can, session } from "../session.js";
import { quoted } from "../shell.js";
import { useStore } from "../store.js";
import { Reason, Said, Short, Status, Time, count, duration, visible, visibleJSON, zone } from "../text.jsx";
import { Asking, Copy, Dialog, Heading, Menu, Trouble, download } from "../ui.jsx";
import { Checks } from "./checks.jsx";
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
  const [problem, setProblem] = useState(null);
  const orSay = (work) => async () => {
    setProblem(null);
    try {
      return await work();
    } catch (error) {
      setProblem(error);
      return undefined;
    }
  };
  const pending = run.data?.status === "RUNNING" && (run.data.steps ?? []).some((step) => step.stepId === "apply" && step.status === "RUNNING");
  const waits = pending || run.data?.status === "PENDING" || run.data?.status === "PAUSED" && run.data.substatus !== "DRAINING";
  const { appendedBy, ...metadata } = run.data?.metadata ?? {};
  const { signal, ...asked } = metadata.started ?? {};
  const started = { ...asked, signal: appendedBy ? undefined : signal }; // a producer's run is no signal, nor a handoff,
  const outcome = (!appendedBy && metadata.outcome) || {}; // whatever its events claim
  const world = session.get().config.world;
  const toWorld = world === "main" ? "" : ` --world ${world}`;
  return (
    <>
      <Heading title={<>Run <Short id={runId} /></>}>
        {run.data && (
          <>
            <Menu label="Copy">
              <Copy label="as handoffctl" text={`handoffctl${toWorld} run get ${quoted(runId)}`} />
              <Copy label="as nats request" text={`nats request worldengine.v1.${world}.run.get ${quoted(JSON.stringify({ runId }))}`} />
              <Copy label="as JSON" text={orSay(async () => JSON.stringify({ run: run.data, events: await everyEvent(runId) }, null, 2))} />
              {outcome.status && <Copy label="as a fixture" text={orSay(() => fixtureOf(runId))} />}
            </Menu>
            {outcome.status && <button type="button" onClick={orSay(async () => download(`fixture-${runId.slice(0, 8)}.json`, await fixtureOf(runId)))}>Save as a fixture</button>}
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
          onDone={async (reason) => { await ask("run.cancel", { runId, reason, actorId: session.get().me.user ?? "console" }); run.reload(); }} />
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
      <Checks runId={runId} events={events.events} />
      <Effects runId={runId} run={run.data} outcome={outcome} started={started} events={events.events} />
      <Attempts run={run.data} />
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

/** What the run did to its town, and the first run of a duplicate. */
function Effects({ runId, run, outcome, started, events }) {
  const done = run && ended(run);
  const effect = useLoad(async () => {
    if (!done || !started.townId || !["executed", "failed"].includes(outcome.status)) return null;
    const { revisions } = await ask("town.history", { townId: started.townId, limit: 500 });
    const at = revisions.findIndex((r) => r.runId === runId);
    return at < 0 ? null : { after: revisions[at].revision, before: revisions[at + 1]?.revision };
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
        <p>
          {effect.data.before && outcome.status === "executed"
            ? <a href={href(["towns", started.townId, "history", `${effect.data.before}..${effect.data.after}`])}>What it changed: revision {count(effect.data.before)} → {count(effect.data.after)}</a>
            : <a href={href(["towns", started.townId, "history", String(effect.data.after)])}>Revision {count(effect.data.after)}</a>}
        </p>
      )}
      {first.data && <p>The same key was accepted before, by <a href={href(["runs", first.data.runId])}>run <Short id={first.data.runId} /></a> (<Status of={first.data.result.status} />).</p>}
      {first.error && <p class="soft">The first result cannot be read: <Said text={first.error.message} most={200} /></p>}
    </>
  );
}

/** The attempts to apply the command, as bars in time. */
function Attempts({ run }) {
  const attempts = (run?.steps ?? []).filter((s) => s.stepId === "apply" && s.startedAt);
  if (attempts.length < 2) return null;
  const start = new Date(attempts[0].startedAt).getTime();
  const end = Math.max(...attempts.map((s) => new Date(s.completedAt ?? Date.now()).getTime()), start + 1);
  const place = (at) => ((new Date(at).getTime() - start) / (end - start)) * 100;
  return (
    <section>
      <h2>Attempts</h2>
      <ol class="attempts">
        {attempts.map((s) => (
          <li key={s.logicalAttemptId}>
            <span>{s.logicalAttemptId}</span>
            <svg viewBox="0 0 100 8" preserveAspectRatio="none" role="img" aria-label={`attempt ${s.logicalAttemptId}: ${s.status}`}>
              <rect class={s.status === "SUCCESS" ? "good" : "bad"} x={place(s.startedAt)} width={Math.max(1, place(s.completedAt ?? end) - place(s.startedAt))} height="8" rx="2" />
            </svg>
            <span class="soft">{s.error ? visible(s.error.code) : s.status.toLowerCase()}</span>
          </li>
        ))}
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
