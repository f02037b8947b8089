import { alertMeanings } from "../../../../client/js/contract.gen.mjs";
import { Away } from "../away.jsx";
import { href } from "../route.js";
import { Age, Said, Short, Time, count, counted, severities, zone } from "../text.jsx";

/** What the overview says of alerts, and of towns that wait. */
export function Attention({ of }) {
  return <><Newest of={of} /><Held of={of} /></>;
}

/** The newest open alerts, one of each code, without the absences that Held names. */
function Newest({ of }) {
  const open = (of?.alerts.newest ?? []).filter((a) => a.code !== "PLUGIN_ABSENT" || !of.townStates.noPlugin);
  if (open.length === 0) return null;
  const [worst] = open.map((a) => a.severity).sort();
  return (
    <section class={`notice ${severities[worst] ?? "calm"}`}>
      <div class="heading"><h2>Alerts</h2><a href={href(["alerts"])}>All alerts</a></div>
      <ul class="plain">
        {open.map((a) => (
          <li key={a.id}>
            <strong>{a.severity}</strong> {alertMeanings[a.code] ?? a.code}{a.open > 1 && ` ${counted(a.open, "alert")}:`}{" "}
            {a.towns?.length > 0 && <>{a.towns.length === 1 ? "town" : "towns"} <Towns of={a.towns} all={a.towns.length} /></>}{" "}
            {a.runId && <a href={href(["runs", a.runId])}>run <Short id={a.runId} /></a>} <span class="soft"><Age since={a.at} /> ago</span>
          </li>
        ))}
      </ul>
    </section>
  );
}

/** How many towns of a kind are named. */
const named = 5;

/** The towns that are paused, and those whose plugin is away. */
function Held({ of }) {
  if (!of?.townsPaused || of.townsPaused.length + of.pluginsAbsent.length === 0) return null;
  const { paused, noPlugin } = of.townStates;
  return (
    <section class="notice wait">
      <h2>Towns that wait</h2>
      <ul class="plain">
        {noPlugin === 1 && <li><Away of={of.pluginsAbsent[0]} town /></li>}
        {noPlugin > 1 && <li><Absences of={of.pluginsAbsent} all={noPlugin} /></li>}
        {of.townsPaused.slice(0, named).map((t) => (
          <li key={`${t.townId} paused`}>
            <a href={href(["towns", t.townId])}><Said text={t.townId} most={48} /></a> is paused by <Said text={t.actorId} most={48} /> for <Age since={t.since} />{t.reason && <>: <Said text={t.reason} most={200} /></>}
          </li>
        ))}
        {paused > named && <li>and {counted(paused - named, "more paused town", "more paused towns")}</li>}
      </ul>
    </section>
  );
}

/** The towns without their plugin, which may well have one cause. */
function Absences({ of, all }) {
  const since = of.map((a) => a.since).reduce((a, b) => (a < b ? a : b));
  return (
    <>
      <strong>{counted(all, "town has", "towns have")} no plugin</strong> since <Time at={since} /> {zone}: <Towns of={of.map((a) => a.townId)} all={all} />. <Said text={of[0].todo} most={300} />
    </>
  );
}

/** Names the first of some towns. */
function Towns({ of, all }) {
  return (
    <>
      {of.slice(0, named).map((id, i) => <span key={id}>{i > 0 && ", "}<a href={href(["towns", id])}><Said text={id} most={48} /></a></span>)}
      {all > named && ` and ${count(all - named)} more`}
    </>
  );
}
