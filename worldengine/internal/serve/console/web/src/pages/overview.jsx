import { useEffect, useState } from "preact/hooks";
import { feed, isChange } from "../feed.js";
import { useLoad, useSoon } from "../load.js";
import { Later } from "../later.jsx";
import { inAddress, inRequest, rangeOf } from "../range.js";
import { href, route } from "../route.js";
import { RunTable } from "../runtable.jsx";
import { ask, can } from "../session.js";
import { useStatus } from "../status.js";
import { useStore } from "../store.js";
import { Age, Said, count } from "../text.jsx";
import { Heading, Trouble } from "../ui.jsx";
import { useRuns } from "../useruns.js";

/** How many runs and changes are shown. */
const newest = 20;

/** Returns the newest changes of towns that no run has made: those that may be among the newest runs. */
async function changesOfTowns() {
  const { revisions } = await ask("town.history", { limit: 100 });
  return revisions.filter((r) => !r.runId);
}

/** Returns the changes of a range of time. */
export const changesIn = (changes, { from = -Infinity, to = Infinity }) => changes.filter(({ at }) => Date.parse(at) >= from && Date.parse(at) < to);

/** The number of commits from which on an index that is behind is worth a look. */
const far = 1000;

export function Overview() {
  const range = rangeOf(useStore(route).query);
  const runs = useRuns(inRequest(range), newest);
  const changes = useLoad(changesOfTowns, []);
  const changed = useSoon(changes.reload);
  const status = useStatus(true);
  const soon = useSoon(status.reload);
  useEffect(() => {
    const off = feed.listen((commits, lost) => {
      if (lost || commits.some(isChange)) changed();
      if (commits.some(matters)) soon();
    });
    const offAlerts = feed.listenAlerts(soon);
    return () => { off(); offAlerts(); };
  }, []);
  const { data } = status;
  return (
    <>
      <Heading title="Overview"><State of={data} />{data?.status && <Later page="PauseButton" control={status} quiet />}</Heading>
      {!data && <Trouble error={status.error} retry={status.reload} />}
      <Paused control={data} />
      {data && <Later page="Attention" of={data} quiet />}
      <Later page="Graphs" />
      <Counters of={data} />
      <div class="heading"><h2>Activity</h2><a href={href(["runs"], inAddress(range))}>All runs{range.from !== undefined && " of this time"}</a></div>
      <Trouble error={changes.error} retry={changes.reload} />
      <RunTable list={runs} changes={changesIn(changes.data ?? [], range)} most={newest} label="Activity" />
    </>
  );
}

/** Reports whether a commit changes what waits: a pause, an approval, a command in hand. */
const matters = ({ cause, events = [] }) =>
  ["control", "asked", "decided", "pending"].includes(cause) || events.some((e) => e.eventType === "SignalAccepted");

/** Whether the world runs, and by how many servers. */
function State({ of }) {
  if (!of?.status) return null;
  const [tone, word] = of.status === "PAUSED" ? ["wait", of.substatus ? "draining" : "paused"] : ["good", "running"];
  const standby = of.servers.filter((s) => !s.writer).length;
  return (
    <span class="soft">
      <span class={`status ${tone}`}>{word}</span>{of.servers.length > standby && " on 1 server"}{standby > 0 && `, ${count(standby)} standing by`}
      {can("world.clients") && <> · <a href={href(["clients"])}>Who is connected</a></>}
    </span>
  );
}

export function Paused({ control, what = "The world" }) {
  if (control?.status !== "PAUSED") return null;
  const by = control.pausedBy;
  return (
    <div class="notice wait">
      <strong>{what} is paused{control.substatus ? ", and draining" : null}.</strong>{" "}
      Handoffs wait until it is resumed.{control.applying > 0 && ` Commands still being applied: ${control.applying}.`}
      {by && <> By <Said text={by.actorId} />, <Age since={by.at} /> ago{by.reason && <>: <Said text={by.reason} most={200} /></>}.</>}
    </div>
  );
}

/** The counts of the server that writes, and the present state of the world. */
function Counters({ of }) {
  if (!of?.servers.length) return null;
  const writer = of.servers.find((s) => s.writer);
  const { results, overload, applying } = writer.stats;
  const refused = Object.values(overload.refused).reduce((a, b) => a + b, 0);
  const behind = Math.max(0, of.logEnd - writer.indexed);
  const { lost } = of.alerts;
  const done = [
    ["Executed", results.executed, results.executed && "good"], ["Rejected", results.rejected, results.rejected && "bad"],
    ["Stale", results.stale, results.stale && "wait"], ["Duplicate", results.duplicate],
    ["Failed", results.failed, results.failed && "bad"], ["Overload", refused, refused && "bad"],
    ...(lost ? [["Alerts lost", lost, "bad"]] : []),
  ];
  const now = [
    ["Waiting", of.waiting], ["Applying", applying], ["Index behind", behind, behind > far && "wait"], ["Towns", of.towns],
  ];
  return (
    <div class="counted">
      <Cells title="Since the server started" cells={done} />
      <Cells title="Now" cells={now} />
    </div>
  );
}

function Cells({ title, cells }) {
  return (
    <section>
      <h2>{title}</h2>
      <dl class="counters">
        {cells.map(([name, value, tone]) => <div key={name} class={tone || ""}><dt>{name}</dt><dd>{count(value)}</dd></div>)}
      </dl>
    </section>
  );
}
