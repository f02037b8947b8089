import { useEffect, useState } from "preact/hooks";
import { visible, visibleJSON } from "./visible.js";

export { visible, visibleJSON };

/**
 * A text that others wrote: always text, of one line, cut where it is long. An empty one has no node, which Preact
 * would write again at each rendering.
 */
export function Said({ text, most = 80 }) {
  const all = visible(text);
  const short = all.length > most ? `${all.slice(0, most)}…` : all;
  return <bdi class="said" title={all.length > most ? all.slice(0, 1000) : undefined}>{short || null}</bdi>;
}

/** A hash or a run's id, of which the beginning is enough to tell it from others. */
export function Short({ id, size = 8 }) {
  return <code title={visible(id).slice(0, 200)}>{visible(id).replace(/^[a-z]+_/, "").slice(0, size)}</code>;
}

const time = { hour: "2-digit", minute: "2-digit", second: "2-digit", hourCycle: "h23" };
const exact = { ...time, fractionalSecondDigits: 3 };
const date = { month: "short", day: "numeric" };
const format = (options) => new Intl.DateTimeFormat(undefined, options);
const clocks = { today: format(time), day: format({ ...date, ...time }), exactToday: format(exact), exactDay: format({ ...date, ...exact }) };

/** A time of this machine's clock, without its date. */
export const clock = (at) => clocks.today.format(new Date(at));

/** The time zone of this machine, in which times are shown, such as UTC+2. */
export const zone = format({ timeZoneName: "shortOffset" }).formatToParts()
  .find((part) => part.type === "timeZoneName").value.replace("GMT", "UTC").replace(/\+0$/, "");

/** A time as this machine's clock has it, of runs with milliseconds; in UTC on hover. */
export function Time({ at, ms }) {
  const date = new Date(at ?? NaN);
  if (Number.isNaN(date.getTime())) return <span>–</span>;
  const today = date.toDateString() === new Date().toDateString();
  const shown = clocks[ms ? (today ? "exactToday" : "exactDay") : (today ? "today" : "day")];
  return <time datetime={date.toISOString()} title={date.toISOString()}>{shown.format(date)}</time>;
}

/** How long ago something was, growing as it is looked at. */
export function Age({ since }) {
  const [, tick] = useState(0);
  useEffect(() => {
    const timer = setInterval(() => tick((n) => n + 1), 1000);
    return () => clearInterval(timer);
  }, []);
  const ms = Date.now() - new Date(since).getTime();
  return <>{ms < 1000 ? "a moment" : duration(Math.floor(ms / 1000) * 1000)}</>;
}

export function duration(ms) {
  if (!Number.isFinite(ms)) return "–";
  if (ms < 1) return "< 1 ms";
  if (ms < 1000) return `${Math.round(ms)} ms`;
  if (ms < 60_000) return `${(ms / 1000).toFixed(ms < 10_000 && ms % 1000 ? 1 : 0)} s`;
  if (ms < 3_600_000) return `${Math.floor(ms / 60_000)} min`;
  if (ms < 172_800_000) return `${Math.floor(ms / 3_600_000)} h`;
  return `${Math.floor(ms / 86_400_000)} days`;
}

const plain = new Intl.NumberFormat();
export const count = (n) => plain.format(n ?? 0);

/** A number with what it counts: counted(1, "town") is "1 town", and counted(2, "town") is "2 towns". */
export const counted = (n, one, many = `${one}s`) => `${count(n)} ${n === 1 ? one : many}`;

const tones = {
  executed: "good", COMPLETED: "good", RUNNING: "busy", PENDING: "busy", APPROVED: "busy", PAUSED: "wait",
  failed: "bad", FAILED: "bad", rejected: "bad", INCONSISTENT: "bad", stale: "wait", duplicate: "calm",
  CANCELLED: "calm",
};

/** A reason, where it says more than the status beside it. */
export function Reason({ code, status, most = 48 }) {
  if (!code || code === String(status).toUpperCase()) return null;
  return /^[A-Z_]{1,24}$/.test(code) ? <span class="reason">{code}</span> : <Said text={code} most={most} />;
}

/** The status of a run or a result, in its colour and its word. */
export function Status({ of, substatus, reason }) {
  if (!of) return <span class="status calm">–</span>;
  const tone = reason === "APPROVAL_REQUIRED" ? "wait" : tones[of] ?? "calm";
  return <span class={`status ${tone}`} title={reason}>{[of, substatus].filter(Boolean).map((word) => visible(word).toLowerCase()).join(", ")}</span>;
}
