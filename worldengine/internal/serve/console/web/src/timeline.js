import { ended } from "./rows.js";

const steps = [1, 2, 5, 10, 20, 50, 100, 200, 500, 1e3, 2e3, 5e3, 10e3, 30e3, 60e3, 120e3, 300e3, 600e3, 1800e3, 3600e3, 7200e3, 21_600e3, 86_400e3];
/** How many parts the scale has at most. */
const mostTicks = 6;

const time = (at) => {
  const ms = Date.parse(at ?? "");
  return Number.isNaN(ms) ? undefined : ms;
};

/**
 * Returns how a run went on, as rows {name, from, to, tone, why} with milliseconds after its arrival, and the scale
 * below them: the length, and the ticks on it. A row with one time has no `to`. It returns null for a run whose
 * arrival is not known.
 */
export function timelineOf(run, now) {
  const arrived = time(run.arrivedAt);
  if (arrived === undefined) return null;
  const after = (at) => (time(at) === undefined ? undefined : Math.max(0, time(at) - arrived));
  const over = ended(run);
  const [started, ending, here] = [after(run.startedAt), after(run.completedAt), Math.max(0, now - arrived)];
  const rows = [{ name: "Arrived", from: 0 }];
  const waited = started ?? ending ?? here;
  if (waited > 0) rows.push({ name: "Waited", from: 0, to: waited, tone: "wait", open: started === undefined && !over });
  const attempts = (run.steps ?? []).filter((step) => step.stepId === "apply" && step.startedAt);
  for (const step of attempts) rows.push(attemptOf(step, attempts.length > 1, after, here));
  if (over && ending !== undefined) rows.push({ name: run.status === "CANCELLED" ? "Cancelled" : "Committed", from: ending });
  if (over && run.tookMs !== undefined) rows.push({ name: "Answer sent", from: run.tookMs });
  const length = Math.max(1, ...rows.map((row) => row.to ?? row.from));
  return { rows, length, ticks: ticksOf(length) };
}

const attempt = { SUCCESS: ["Applied", "good"], RUNNING: ["Being applied", "busy"] };

/** The command as it was asked for in one attempt, until the game answered. */
function attemptOf(step, several, after, here) {
  const [name, tone] = attempt[step.status] ?? ["Asked the game", "bad"];
  return {
    name: `${name}${several ? `, attempt ${step.logicalAttemptId}` : ""}`, from: after(step.startedAt),
    to: after(step.completedAt) ?? here, tone, why: step.error?.code, open: !step.completedAt,
  };
}

function ticksOf(length) {
  const step = steps.find((ms) => length / ms <= mostTicks) ?? Math.ceil(length / mostTicks / 86_400e3) * 86_400e3;
  return Array.from({ length: Math.floor(length / step) + 1 }, (_, i) => i * step);
}
