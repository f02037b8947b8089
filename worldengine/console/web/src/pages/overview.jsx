import { useEffect, useState } from "preact/hooks";
import { useApprovals } from "../approvals.js";
import { useChanges } from "../changes.js";
import { meaning } from "../codes.js";
import { feed } from "../feed.js";
import { useLoad } from "../load.js";
import { href } from "../route.js";
import { RunTable } from "../runtable.jsx";
import { ask, can, session } from "../session.js";
import { Age, Said, count, counted } from "../text.jsx";
import { Heading, Trouble } from "../ui.jsx";
import { useRuns } from "../useruns.js";
import { PauseButton } from "./pause.jsx";

/** How many runs and changes are shown. */
const newest = 20;

/** How often the counters are asked for while the page is looked at. */
const again = 3000;

/** Asks every server of the world for its statistics; null where the user may not. */
async function statistics() {
  const { client, me } = session.get();
  if (me.role && !["operator", "observer"].includes(me.role)) return null;
  const servers = [];
  const answers = await client.nc.requestMany("$SRV.STATS.worldengine", "", { strategy: "timer", maxWait: 400 });
  for await (const msg of answers) {
    const stats = msg.json();
    if (stats.endpoints?.[0]?.data) servers.push(stats.endpoints[0].data);
  }
  return servers;
}

const sum = (servers, of) => servers.reduce((total, s) => total + (of(s) ?? 0), 0);

export function Overview() {
  const runs = useRuns({}, newest);
  const changes = useChanges();
  const approvals = useApprovals();
  const control = useLoad(() => ask("control.get", {}), []);
  const stats = useLoad(statistics, []);
  const alerts = useLoad(async () => (can("alert.list") ? (await ask("alert.list", { limit: 5, unacknowledged: true })).alerts : null), []);
  useEffect(() => {
    const timer = setInterval(() => { if (!document.hidden) stats.reload(); }, again);
    const off = feed.listen((events) => {
      if (events.some((e) => ["SignalAccepted"].includes(e.eventType))) control.reload();
    });
    const offAlerts = feed.listenAlerts(() => alerts.reload());
    return () => { clearInterval(timer); off(); offAlerts(); };
  }, []);
  return (
    <>
      <Heading title="Overview"><State control={control.data} servers={stats.data} /><PauseButton control={control} /></Heading>
      <Trouble error={control.error} retry={control.reload} />
      <Paused control={control.data} />
      <Counters servers={stats.data} />
      <Newest alerts={alerts.data} />
      <Waiting approvals={approvals.data} />
      <div class="heading"><h2>Activity</h2><a href={href(["runs"])}>All runs</a></div>
      <RunTable list={runs} changes={changes} most={newest} label="Activity" />
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
      {approvals.more ? "More than " : ""}{counted(approvals.waiting.length, "proposal waits", "proposals wait")} for a person's approval:{" "}
      <a href={href(["approvals"], { town: townId })}>Approvals</a>
    </p>
  );
}

export function Paused({ control, what = "The world" }) {
  if (control?.status !== "PAUSED") return null;
  const by = control.pausedBy;
  return (
    <div class="notice wait">
      <strong>{what} is paused{control.substatus ? ", and draining" : ""}.</strong>{" "}
      Handoffs wait until it is resumed.{control.applying > 0 && ` Commands still being applied: ${control.applying}.`}
      {by && <> By <Said text={by.actorId} />, <Age since={by.at} /> ago{by.reason && <>: <Said text={by.reason} most={200} /></>}.</>}
    </div>
  );
}

function Counters({ servers }) {
  if (!servers) return null;
  if (servers.length === 0) return <div class="notice bad">No engine answers for this world.</div>;
  const results = (status) => sum(servers, (s) => s.results?.[status]);
  const refused = sum(servers, (s) => Object.values(s.overload?.refused ?? {}).reduce((a, b) => a + b, 0));
  const behind = Math.max(...servers.map((s) => Math.abs((s.eventsFollowed ?? 0) - (s.receiptsFollowed ?? 0))));
  const cells = [
    ["Executed", results("executed"), "good"], ["Rejected", results("rejected"), results("rejected") && "bad"],
    ["Stale", results("stale"), results("stale") && "wait"], ["Duplicate", results("duplicate"), ""],
    ["Failed", results("failed"), results("failed") && "bad"],
    ["Waiting", sum(servers, (s) => s.waiting), ""], ["Applying", sum(servers, (s) => s.applying), ""],
    ["Overload", refused, refused && "bad"], ["Events behind", behind, behind > 1000 && "wait"],
  ];
  return (
    <dl class="counters" aria-label="Since the servers started">
      {cells.map(([name, value, tone]) => <div key={name} class={tone || ""}><dt>{name}</dt><dd>{count(value)}</dd></div>)}
    </dl>
  );
}

function Newest({ alerts }) {
  if (!alerts?.length) return null;
  return (
    <section class="notice bad">
      <div class="heading"><h2>Alerts</h2><a href={href(["alerts"])}>All alerts</a></div>
      <ul class="plain">
        {alerts.map((a) => (
          <li key={a.id}><strong>{a.severity}</strong> {meaning(a.code).says} <span class="soft"><Age since={a.at} /> ago</span></li>
        ))}
      </ul>
    </section>
  );
}
