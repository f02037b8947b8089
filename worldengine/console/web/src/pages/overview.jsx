import { useEffect, useState } from "preact/hooks";
import { useApprovals } from "../approvals.js";
import { alertMeanings } from "../../../../client/js/contract.gen.mjs";
import { eventsOf, feed, isChange } from "../feed.js";
import { useLoad, useSoon } from "../load.js";
import { href } from "../route.js";
import { RunTable } from "../runtable.jsx";
import { ask, can, session } from "../session.js";
import { Age, Said, count, counted } from "../text.jsx";
import { Heading, Trouble } from "../ui.jsx";
import { useRuns } from "../useruns.js";
import { PauseButton } from "./pause.jsx";

/** How many runs and changes are shown. */
const newest = 20;

/** Returns the newest changes of towns that no run has made: those that may be among the newest runs. */
async function changesOfTowns() {
  const { revisions } = await ask("town.history", { limit: 100 });
  return revisions.filter((r) => !r.runId);
}

/** How many open alerts are counted, and how many of them are shown. */
const mostAlerts = 99;
const shownAlerts = 5;

/**
 * How often the counters are asked for while the page is looked at. They are asked for by time, since they change with
 * each request to a server and no message says so. No list is.
 */
const again = 3000;

/**
 * Asks every server of the world for its statistics; null where the user may not. It asks first where the log ends:
 * how far the index is behind is measured from there, as handoffctl status does.
 */
async function statistics() {
  const { client, me } = session.get();
  if (me.role && !["operator", "observer"].includes(me.role)) return null;
  const servers = [];
  try {
    const end = await logEnd(client, me.role);
    const answers = await client.nc.requestMany("$SRV.STATS.worldengine", "", { strategy: "timer", maxWait: 400 });
    for await (const msg of answers) {
      const stats = msg.json();
      if (stats.metadata?.world === client.world && stats.endpoints?.[0]?.data) servers.push(stats.endpoints[0].data);
    }
    return { servers, end };
  } catch (error) {
    if (error.code === "NO_RESPONDERS" || error.name === "NoRespondersError") return { servers, end: 0 };
    throw error;
  }
}

/** Returns where the log ends. An observer may not ask for that: then it is the newest revision of a town, the only one
    that is asked for. */
async function logEnd({ nc, world }, role) {
  try {
    if (role !== "observer") return (await nc.request(`$JS.API.STREAM.INFO.WORLD_${world}_LOG`, "", { timeout: 1000 })).json().state.last_seq;
  } catch { /* as an observer: the streams may be another account's */ }
  const { revisions } = await ask("town.history", { limit: 1 });
  return revisions[0]?.revision ?? 0;
}

/** The number of commits from which on an index that is behind is worth a look. */
const far = 1000;

const sum = (servers, of) => servers.reduce((total, s) => total + (of(s) ?? 0), 0);

export function Overview() {
  const runs = useRuns({}, newest);
  const changes = useLoad(changesOfTowns, []);
  const changed = useSoon(changes.reload);
  const approvals = useApprovals();
  const control = useLoad(() => ask("control.get", {}), []);
  const stats = useLoad(statistics, []);
  const alerts = useLoad(async () => (can("alert.list") ? ask("alert.list", { limit: mostAlerts, unacknowledged: true }) : null), []);
  useEffect(() => {
    const timer = setInterval(() => { if (!document.hidden && session.get().link === "live") stats.reload(); }, again);
    const off = feed.listen((commits, lost) => {
      if (lost || commits.some(isChange)) changed();
      if (lost || eventsOf(commits).some((e) => e.eventType === "SignalAccepted")) control.reload();
    });
    const offAlerts = feed.listenAlerts(() => alerts.reload());
    return () => { clearInterval(timer); off(); offAlerts(); };
  }, []);
  return (
    <>
      <Heading title="Overview"><State control={control.data} servers={stats.data?.servers} /><PauseButton control={control} /></Heading>
      <Trouble error={control.error} retry={control.reload} />
      <Paused control={control.data} />
      {!stats.data && <Trouble error={stats.error} retry={stats.reload} />}
      <Counters stats={stats.data} alerts={alerts.data} />
      <Newest alerts={alerts.data?.alerts} />
      <Waiting approvals={approvals.data} />
      <div class="heading"><h2>Activity</h2><a href={href(["runs"])}>All runs</a></div>
      <Trouble error={changes.error} retry={changes.reload} />
      <RunTable list={runs} changes={changes.data ?? []} most={newest} label="Activity" />
    </>
  );
}

/** Whether the world runs, and by how many servers. */
function State({ control, servers }) {
  if (!control) return null;
  const [tone, word] = control.status === "PAUSED" ? ["wait", control.substatus ? "draining" : "paused"] : ["good", "running"];
  return <span class="soft"><span class={`status ${tone}`}>{word}</span>{servers?.length > 0 && ` on ${counted(servers.length, "server")}`}</span>;
}

/** What waits for a person, and where it is decided. */
export function Waiting({ approvals, townId }) {
  if (!approvals?.waiting.length) return null;
  return (
    <p class="notice wait">
      {approvals.more ? "More than " : null}{counted(approvals.waiting.length, "proposal waits", "proposals wait")} for a person's approval:{" "}
      <a href={href(["approvals"], { town: townId })}>Approvals</a>
    </p>
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

/** How far the index is behind the log, in commits: of all servers, the one that is further counts. */
function behind({ servers, end }) {
  const index = Math.max(0, ...servers.map((s) => s.indexed ?? 0));
  return Math.max(end, index) - index;
}

/** What the servers have done, and how they are now. */
function Counters({ stats, alerts }) {
  if (!stats) return null;
  const { servers } = stats;
  if (servers.length === 0) return <div class="notice bad">No engine answers for this world.</div>;
  const results = (status) => sum(servers, (s) => s.results?.[status]);
  const refused = sum(servers, (s) => Object.values(s.overload?.refused ?? {}).reduce((a, b) => a + b, 0));
  const index = behind(stats);
  const open = alerts?.alerts.length ?? 0;
  const lost = sum(servers, (s) => s.alertsLost);
  const done = [
    ["Executed", results("executed"), results("executed") && "good"], ["Rejected", results("rejected"), results("rejected") && "bad"],
    ["Stale", results("stale"), results("stale") && "wait"], ["Duplicate", results("duplicate")],
    ["Failed", results("failed"), results("failed") && "bad"], ["Overload", refused, refused && "bad"],
    ...(lost ? [["Alerts lost", lost, "bad"]] : []),
  ];
  const now = [
    ["Waiting", sum(servers, (s) => s.waiting)], ["Applying", sum(servers, (s) => s.applying)],
    ["Index behind", index, index > far && "wait"],
    ...(alerts ? [["Open alerts", open, open && "bad", alerts.next ? "+" : null]] : []),
  ];
  return (
    <div class="counted">
      <Cells title={servers.length === 1 ? "Since the server started" : "Since the servers started"} cells={done} />
      <Cells title="Now" cells={now} />
    </div>
  );
}

function Cells({ title, cells }) {
  return (
    <section>
      <h2>{title}</h2>
      <dl class="counters">
        {cells.map(([name, value, tone, more]) => <div key={name} class={tone || ""}><dt>{name}</dt><dd>{count(value)}{more}</dd></div>)}
      </dl>
    </section>
  );
}

function Newest({ alerts }) {
  if (!alerts?.length) return null;
  return (
    <section class="notice bad">
      <div class="heading"><h2>Alerts</h2><a href={href(["alerts"])}>All alerts</a></div>
      <ul class="plain">
        {alerts.slice(0, shownAlerts).map((a) => (
          <li key={a.id}><strong>{a.severity}</strong> {alertMeanings[a.code] ?? a.code} <span class="soft"><Age since={a.at} /> ago</span></li>
        ))}
      </ul>
    </section>
  );
}
