import { alertAdvice, alertMeanings } from "../alerts.gen.js";
import { causesOf, named } from "../causes.js";
import { href } from "../route.js";
import { Age, Said, Short, Time, count, counted, zone } from "../text.jsx";

/** Why the world needs a look: a line for each cause, with what to do folded behind it. */
export function Attention({ of }) {
  const causes = causesOf(of);
  if (causes.length === 0) return null;
  return (
    <ul class="causes plain" aria-label="Needs attention">
      {causes.map((c) => <Cause key={c.text ?? c.alert?.id ?? c.kind} of={c} />)}
    </ul>
  );
}

/** The gravest cause, for the pages that are not the overview. */
export function Banner({ of }) {
  const [first, ...others] = causesOf(of).filter((c) => c.grave);
  if (!first) return null;
  return (
    <section class="causes banner" role="status">
      <div class={`status ${first.tone}`}><Line of={first} />{others.length > 0 && <>, and <a href={href([])}>{counted(others.length, "more cause")} to look at the world</a></>}</div>
    </section>
  );
}

function Cause({ of: cause }) {
  const todo = todos[cause.kind]?.(cause);
  return (
    <li class={`cause ${cause.tone}`}>
      <span class="line"><Line of={cause} /></span>
      {todo && <details><summary>What to do</summary><div class="detail">{todo}</div></details>}
    </li>
  );
}

const Line = ({ of }) => lines[of.kind](of);

/** The meaning of an alert in a line: its sentence without the details. */
const meaning = (code) => (alertMeanings[code] ?? code).split(/[:.](?: |$)/)[0];

const lines = {
  problem: ({ text }) => <strong><Said text={text} most={400} /></strong>,
  noPlugin: ({ count: all, since, absent }) => (
    <><strong>{counted(all, "town has", "towns have")} no plugin</strong>{since && <> since <Time at={since} /> {zone}</>}: <Towns of={absent.map((a) => a.townId)} all={all} /></>
  ),
  alert: ({ alert: a }) => (
    <>
      {a.severity} <strong>{meaning(a.code)}</strong>{a.open > 1 && ` (${counted(a.open, "alert")})`}{a.open > 1 ? ", the last at " : " at "}<Time at={a.at} /> {zone}
      {a.towns?.length > 0 && <>: <Towns of={a.towns} all={a.towns.length} /></>}
      {a.runId && <>, <a href={href(["runs", a.runId])}>run <Short id={a.runId} /></a></>}
      {" "}· <a href={href(["alerts"])}>All alerts</a>
    </>
  ),
  inDoubt: ({ count: all }) => <strong><a href={href(["towns"], { state: "inDoubt" })}>{counted(all, "town is", "towns are")} in doubt</a></strong>,
  paused: ({ count: all, pauses }) => (
    <>
      <strong>{counted(all, "town is", "towns are")} paused</strong>:{" "}
      {pauses.slice(0, named).map((t, i) => (
        <span key={t.townId}>{i > 0 && ", "}<Town id={t.townId} /> by <Said text={t.actorId} most={24} /> for <Age since={t.since} />{t.reason && <> (<Said text={t.reason} most={60} />)</>}</span>
      ))}
      {all > named && <> and <a href={href(["towns"], { state: "paused" })}>{count(all - named)} more</a></>}
    </>
  ),
  approvals: ({ count: all, since }) => (
    <><strong><a href={href(["approvals"])}>{counted(all, "proposal waits", "proposals wait")}</a></strong> for a person's approval{since && <>, the oldest for <Age since={since} /></>}</>
  ),
};

const todos = {
  noPlugin: ({ absent }) => (
    <>
      {absent[0] && <Said text={absent[0].todo} most={300} />}
      {absent.slice(0, named).filter((a) => a.attempt).map((a) => (
        <div key={a.townId}>
          <Said text={a.townId} most={48} />: the command of <a href={href(["runs", a.runId])}>run <Short id={a.runId} /></a> waits at attempt {a.attempt}, the last answer is “<Said text={a.said} most={200} />”, the next request is at <Time at={a.nextAt} /> {zone}.
        </div>
      ))}
    </>
  ),
  alert: ({ alert: a }) => <>{alertAdvice[a.code] ?? "docs/contracts.md has the codes."} <span class="soft"><Said text={a.message} most={300} /></span></>,
  inDoubt: () => "A game may have applied a command that failed. Look at the game; if town and game differ, put the true state.",
};

const Town = ({ id }) => <a href={href(["towns", id])}><Said text={id} most={40} /></a>;

/** Names the first of some towns. */
function Towns({ of, all }) {
  return (
    <>
      {of.slice(0, named).map((id, i) => <span key={id}>{i > 0 && ", "}<Town id={id} /></span>)}
      {all > named && ` and ${count(all - named)} more`}
    </>
  );
}
