import { useEffect, useState } from "preact/hooks";
import { meaning } from "../codes.js";
import { feed } from "../feed.js";
import { useLoad } from "../load.js";
import { href } from "../route.js";
import { ask, can } from "../session.js";
import { Age, Said, Short, Time, count } from "../text.jsx";
import { Empty, Heading, Trouble } from "../ui.jsx";

const mostAlerts = 1000;
const tones = { P1: "bad", P2: "wait", P3: "calm" };

export function Alerts() {
  const first = useLoad(() => ask("alert.list", { limit: 200 }), []);
  const [more, setMore] = useState({ live: [], older: [], next: 0, error: null });
  useEffect(() => { if (first.data) setMore((m) => (m.older.length ? m : { ...m, next: first.data.next ?? 0 })); }, [first.data]);
  useEffect(() => feed.listenAlerts((alert) => setMore((m) => ({ ...m, live: [alert, ...m.live].slice(0, mostAlerts) }))), []);
  const known = new Set();
  const all = [...more.live, ...(first.data?.alerts ?? []), ...more.older].filter((a) => !known.has(a.id) && known.add(a.id));
  const older = async () => {
    try {
      const page = await ask("alert.list", { limit: 200, after: more.next });
      setMore((m) => ({ ...m, older: [...m.older, ...page.alerts].slice(0, mostAlerts), next: page.next ?? 0, error: null }));
    } catch (error) {
      setMore((m) => ({ ...m, error }));
    }
  };
  if (!can("alert.list")) return <><Heading title="Alerts" /><Empty>This user may not read alerts: they are of all towns. An operator or an observer may.</Empty></>;
  const groups = Map.groupBy ? Map.groupBy(all, (a) => a.code) : groupBy(all);
  const order = [...groups].sort(([, a], [, b]) => `${a[0].severity}`.localeCompare(`${b[0].severity}`) || b[0].at.localeCompare(a[0].at));
  return (
    <>
      <Heading title="Alerts" />
      <Trouble error={first.error} retry={first.reload} />
      {first.data && all.length === 0 && <Empty>No alert was raised in the last 30 days. New ones appear here as they come.</Empty>}
      {order.map(([code, alerts]) => <Group key={code} code={code} alerts={alerts} />)}
      <Trouble error={more.error} retry={older} />
      {more.next > 0 && <button type="button" onClick={older}>Older alerts</button>}
    </>
  );
}

function groupBy(alerts) {
  const groups = new Map();
  for (const a of alerts) groups.set(a.code, [...(groups.get(a.code) ?? []), a]);
  return groups;
}

function Group({ code, alerts }) {
  const [all, setAll] = useState(false);
  const { says, advice } = meaning(code);
  const shown = all ? alerts : alerts.slice(0, 5);
  return (
    <section class={`notice ${tones[alerts[0].severity] ?? "calm"}`}>
      <h2>{says}</h2>
      <p><code><Said text={code} /></code> {alerts[0].severity} · {count(alerts.length)} · the last <Age since={alerts[0].at} /> ago</p>
      <p><strong>What to do:</strong> {advice}</p>
      <ul class="plain">
        {shown.map((a) => (
          <li key={a.id}>
            <Time at={a.at} /> {a.runId && <a data-row href={href(["runs", a.runId])}>run <Short id={a.runId} /></a>} <Said text={a.message} most={240} />
          </li>
        ))}
      </ul>
      {shown.length < alerts.length && <button type="button" onClick={() => setAll(true)}>All {count(alerts.length)}</button>}
    </section>
  );
}
