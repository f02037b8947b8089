import { useLoad } from "../load.js";
import { beside, compared, toJudge } from "../preconditions.js";
import { ask } from "../session.js";
import { Said, Short, count, counted, visible } from "../text.jsx";

const steps = [["duplicate-check", "Duplicate"], ["stale-check", "Stale"], ["precondition-check", "Preconditions"], ["apply", "Apply"]];
/** How many preconditions and failures are shown. */
const most = 50;

/** Returns the handoff of a run and the state of its town when it was judged, where the server still has them. */
async function judged(runId) {
  const { fixtures = [] } = await ask("run.get", { runId, fixtures: true });
  return fixtures.at(-1) ?? null;
}

/** The checks as lights, in their order: what was expected, and what was found. */
export function Checks({ runId, events }) {
  const ends = new Map(events.filter((e) => e.stepId && e.eventType !== "StepStarted").map((e) => [e.stepId, e]));
  const begun = new Set(events.filter((e) => e.stepId).map((e) => e.stepId));
  const compares = ends.get("stale-check")?.payload?.passed === false || typeof ends.get("precondition-check")?.payload?.passed === "boolean";
  const { data, loading } = useLoad(async () => (compares ? judged(runId) : null), [runId, compares]);
  const rows = preconditionsOf(data, ends.get("precondition-check")?.payload);
  if (begun.size === 0) return null;
  return (
    <>
      <ol class="checks" aria-label="Checks">
        {steps.map(([step, name]) => {
          const [tone, text, detail] = checkResult(step, ends.get(step), begun.has(step), { handoff: data?.handoff, loading, rows });
          return <li key={step} class={tone}><strong>{name}</strong> <span>{text}</span>{detail}</li>;
        })}
      </ol>
      {rows.length > 0 && <Preconditions rows={rows.slice(0, most)} />}
      {rows.length > most && <p class="soft">and {counted(rows.length - most, "more precondition")}</p>}
    </>
  );
}

/** Returns what each precondition expected and what the town had; none where that is not known, or there are none. */
function preconditionsOf(fixture, found) {
  if (typeof found?.passed !== "boolean" || !fixture?.snapshot || !fixture.handoff) return [];
  return compared(toJudge(fixture.handoff), fixture.snapshot, found.failures ?? []);
}

/** Returns the tone, the word and the details of a check. */
function checkResult(step, event, begun, judgement) {
  const p = event?.payload ?? {};
  if (!event) return begun ? ["busy", "under way"] : ["calm", "not reached"];
  if (event.eventType === "StepSkipped") return ["calm", "not evaluated"];
  if (event.eventType === "StepFailed") {
    return ["bad", visible(p.error?.code ?? "failed"), <div class="detail"><Said text={p.error?.message} most={300} /></div>];
  }
  if (step === "duplicate-check") {
    return p.duplicate ? ["wait", "accepted before", <div class="detail">first result <Short id={p.duplicateOf} size={12} /></div>] : ["good", "a new key"];
  }
  if (step === "stale-check") return staleResult(p, judgement);
  if (step === "precondition-check") return preconditionResult(p, judgement.rows);
  return ["good", "applied", p.postExecutionDecisionEpoch !== undefined && <div class="detail"><At day={p.postExecutionDecisionEpoch} hash={p.postExecutionSnapshotHash} /></div>];
}

const At = ({ day, hash }) => <>day {count(day)}, <Short id={hash} /></>;

function staleResult(p, { handoff, loading }) {
  const actual = <At day={p.actualDecisionEpoch} hash={p.actualSnapshotHash} />;
  const expected = p.passed ? actual : handoff ? <At day={handoff.decisionEpoch} hash={handoff.snapshotHash} /> : loading ? "…" : "not kept";
  const both = <dl class="detail compare"><dt>Expected</dt><dd>{expected}</dd><dt>Actual</dt><dd>{actual}</dd></dl>;
  return p.passed ? ["good", "decided on the state of now", both] : ["wait", "the town had changed", both];
}

function preconditionResult(p, rows) {
  const failures = p.failures ?? [];
  if (p.passed) return ["good", rows.length > 0 ? `all ${count(rows.length)} hold` : "all hold"];
  const told = rows.length > 0 ? beside(rows, failures) : failures;
  const list = told.length > 0 && <ul class="detail plain">{told.slice(0, most).map((f, i) => <li key={i}><code><Said text={f.kind} /></code> <Said text={f.detail} most={200} /></li>)}</ul>;
  if (failures.length === 1 && failures[0].kind === "approval") return ["wait", "a person has to approve", list];
  return ["bad", `${count(failures.length)} did not hold`, list];
}

function Preconditions({ rows }) {
  return (
    <table class="rows tight">
      <caption class="unseen">Preconditions</caption>
      <thead><tr><th scope="col">Precondition</th><th scope="col">Expected</th><th scope="col">Actual</th><th scope="col" class="wide">Kind</th></tr></thead>
      <tbody>
        {rows.map((r, i) => (
          <tr key={i}>
            <td><span class={`status ${r.holds ? "good" : "bad"}`}>{r.holds ? "holds" : "does not hold"}</span> <Said text={r.what} most={80} /></td>
            <td><Said text={r.expected} /></td><td><Said text={r.actual} /></td><td class="wide soft"><code><Said text={r.kind} /></code></td>
          </tr>
        ))}
      </tbody>
    </table>
  );
}
