import { useEffect, useState } from "preact/hooks";
import { Dialog } from "../actions.jsx";
import { alertAdvice, alertMeanings } from "../alerts.gen.js";
import { severities } from "../causes.js";
import { feed } from "../feed.js";
import { useLoad, useSoon } from "../load.js";
import { href } from "../route.js";
import { actor, ask, can } from "../session.js";
import { reload as reloadStatus } from "../status.js";
import { Age, Said, Short, Time, count, counted, zone } from "../text.jsx";
import { Asking, Empty, Heading, Trouble } from "../ui.jsx";

const mostAlerts = 1000;

export function Alerts() {
  const first = useLoad(async () => (can("alert.list") ? ask("alert.list", { limit: 200 }) : null), []);
  const [more, setMore] = useState({ live: [], older: [], next: 0, error: null });
  useEffect(() => { if (first.data) setMore((m) => (m.older.length ? m : { ...m, next: first.data.next ?? 0 })); }, [first.data]);
  const listed = useSoon(first.reload); // which says by what number a live one is acknowledged
  useEffect(() => feed.listenAlerts((alert) => {
    setMore((m) => ({ ...m, live: [alert, ...m.live].slice(0, mostAlerts) }));
    listed();
  }), []);
  const [acked, setAcked] = useState({});
  const all = once([...more.live, ...(first.data?.alerts ?? []), ...more.older].map((a) => acked[a.seq] ?? a));
  const older = async () => {
    try {
      const page = await ask("alert.list", { limit: 200, after: more.next });
      setMore((m) => ({ ...m, older: [...m.older, ...page.alerts].slice(0, mostAlerts), next: page.next ?? 0, error: null }));
    } catch (error) {
      setMore((m) => ({ ...m, error }));
    }
  };
  if (!can("alert.list")) return <><Heading title="Alerts" /><Empty>This user may not read alerts: they are of all towns. An operator or an observer of all towns may.</Empty></>;
  const order = [...byCode(all)].sort(([, a], [, b]) => `${a[0].severity}`.localeCompare(`${b[0].severity}`) || b[0].at.localeCompare(a[0].at));
  return (
    <>
      <Heading title="Alerts" />
      <Trouble error={first.error} retry={first.reload} />
      <Asking of={first} />
      {first.data && all.length === 0 && <Empty>No alert was raised in the last 30 days. New ones appear here as they come.</Empty>}
      {order.map(([code, alerts]) => (
        <Group key={code} code={code} alerts={alerts} onAcked={(a) => setAcked((known) => ({ ...known, [a.seq]: a }))} />
      ))}
      <Trouble error={more.error} retry={older} />
      {more.next > 0 && <button type="button" onClick={older}>Older alerts</button>}
    </>
  );
}

/** The newest message of each alert, with the numbers of all that are open. Live ones have none before they are listed. */
function once(alerts) {
  const known = new Map();
  for (const a of alerts) {
    const one = known.get(a.id) ?? { ...a, open: new Set(), acknowledged: undefined };
    if (one.at === a.at) one.acknowledged = a.acknowledged;
    if (a.seq && !a.acknowledged) one.open.add(a.seq);
    known.set(a.id, one);
  }
  return [...known.values()];
}

function byCode(alerts) {
  const groups = new Map();
  for (const a of alerts) groups.set(a.code, [...(groups.get(a.code) ?? []), a]);
  return groups;
}

function Group({ code, alerts, onAcked }) {
  const [all, setAll] = useState(false);
  const [says, advice] = [alertMeanings[code] ?? code, alertAdvice[code] ?? "docs/contracts.md has the codes."];
  const shown = all ? alerts : alerts.slice(0, 5);
  const open = alerts.filter((a) => !a.acknowledged);
  return (
    <section class={`notice ${open.length ? severities[alerts[0].severity] ?? "calm" : "calm"}`}>
      <h2>{says}</h2>
      <p>
        <code><Said text={code} /></code> {alerts[0].severity} · {counted(alerts.length, "alert")}, {open.length ? `${count(open.length)} open` : "all acknowledged"} · the last <Age since={alerts[0].at} /> ago
      </p>
      <p><strong>What to do:</strong> {advice}</p>
      <ul class="plain alerts">
        {shown.map((a) => (
          <li key={a.id}>
            <Time at={a.at} /> {zone} {a.runId && <a data-row href={href(["runs", a.runId])}>run <Short id={a.runId} /></a>} {a.townId && <a href={href(["towns", a.townId])}>town <Said text={a.townId} most={32} /></a>} <Said text={a.message} most={240} />{a.more > 0 && <span class="soft"> and {count(a.more)} more of the run</span>}
            {a.acknowledged && <> <span class="soft">acknowledged by <Said text={a.acknowledged.by} /> <Time at={a.acknowledged.at} /> {zone}{a.acknowledged.reason && <>: <Said text={a.acknowledged.reason} /></>}</span></>}
          </li>
        ))}
      </ul>
      <Acknowledge alerts={open} onAcked={onAcked} />
      {shown.length < alerts.length && <button type="button" onClick={() => setAll(true)}>All {count(alerts.length)}</button>}
    </section>
  );
}

/** Acknowledges the open alerts of a group. A user without the right is not offered it. */
function Acknowledge({ alerts, onAcked }) {
  const [asked, setAsked] = useState(null);
  const open = alerts.flatMap((a) => [...a.open]);
  if (!can("alert.ack") || (open.length === 0 && !asked)) return null;
  const done = async (reason) => {
    for (const seq of asked) onAcked(await ask("alert.ack", { seq, actorId: actor(), reason }));
    reloadStatus();
  };
  return (
    <>
      <button type="button" disabled={alerts.some((a) => a.open.size === 0)} onClick={() => setAsked(open)}>Acknowledge</button>
      {asked && <Dialog title={`Acknowledge ${asked.length === 1 ? "this alert" : `these ${count(asked.length)} alerts`}?`} action="Acknowledge"
        says="All users are shown that you have looked after it, and handoffctl status counts it no more. It cannot be taken back." onDone={done} onClose={() => setAsked(null)} />}
    </>
  );
}
