// Sending handoffs, and reading their results.
import { json, milliseconds, verified } from "./checks.mjs";
import { UnavailableError } from "./errors.mjs";
import { isWait } from "./exchange.mjs";
import { defaultPace, isAway, pages, pause } from "./follow.mjs";

/** @import { Msg } from "@nats-io/nats-core" */
/** @import { Client, Outcome, RequestOptions, SendOptions } from "./client.mjs" */
/** @import { ReplyError } from "./errors.mjs" */
/** @import { Handoff, Result, RunEvent } from "./types.mjs" */

/**
 * The client's request to a verb: `waits`, `refused` and `doubt` are of Exchange.
 * @typedef {(verb: string, body: unknown, options: RequestOptions,
 *   waits?: () => Promise<UnavailableError | null>,
 *   refused?: (error: ReplyError | UnavailableError) => void) => Promise<{ msg: Msg, doubt: boolean }>} Ask
 */

/** The longest wait for a decision before the handoff is sent again, in ms. */
const approvalPause = 60_000;

/**
 * Implements `send` of the client.
 * @param {Client} client
 * @param {Ask} ask
 * @param {Handoff} handoff
 * @param {SendOptions} options
 * @returns {Promise<Outcome>}
 */
export async function send(client, ask, handoff, { approvalWait = 0, onApproval, ...options }) {
  let outcome = await sendOnce(client, ask, handoff, options);
  const undecided = () => outcome.result.reasonCode === "APPROVAL_REQUIRED";
  if (approvalWait <= 0 || !undecided()) return outcome;
  const ended = new AbortController(), end = () => ended.abort(), given = options.signal, { signal } = ended;
  given?.addEventListener("abort", end);
  if (given?.aborted) end();
  const timer = setTimeout(end, milliseconds(approvalWait));
  const log = pages(client, { townId: handoff.proposal.townId, signal });
  try {
    onApproval?.(outcome.result);
    await log.next().catch(() => {}); // the end of the log; the decision may be before it
    for (let first = true; undecided() && !signal.aborted; first = false) {
      if (!first) await decision(client, log, handoff.handoffId, signal);
      outcome = await sendAgain(client, ask, handoff, { ...options, signal }) ?? outcome;
      if (!first && undecided() && !signal.aborted) onApproval?.(outcome.result);
    }
    if (given?.aborted) throw new UnavailableError("ABORTED", "given up by its caller", given.reason);
    return outcome;
  } finally {
    clearTimeout(timer);
    given?.removeEventListener("abort", end);
    end(); // ends log
  }
}

/**
 * Sends a handoff that was sent before, until the server answers. It returns null if options.signal has ended it.
 * @param {Client} client @param {Ask} ask @param {Handoff} handoff
 * @param {RequestOptions & { signal: AbortSignal, onPaused?: (why: UnavailableError) => void }} options
 */
async function sendAgain(client, ask, handoff, options) {
  while (!options.signal.aborted) {
    try {
      return await sendOnce(client, ask, handoff, options, true);
    } catch (error) {
      if (options.signal.aborted) break;
      if (!isAway(error) || client.nc.isClosed()) throw error;
      await pause(client, defaultPace.away, options.signal);
    }
  }
  return null;
}

/**
 * Follows the log until there is a decision about a handoff, or for approvalPause.
 * @param {Client} client @param {ReturnType<typeof pages>} log @param {string} handoffId @param {AbortSignal} signal
 */
async function decision(client, log, handoffId, signal) {
  /** @param {RunEvent} event */
  const decides = ({ eventType, payload }) => eventType === "SignalAccepted" && payload?.handoffId === handoffId;
  const until = performance.now() + approvalPause, left = () => until - performance.now();
  while (left() > 0) {
    const page = await log.next().catch(() => null); // the user may not read the events of the town
    if (signal.aborted) return;
    if (!page?.value) return pause(client, Math.max(left(), 0), signal);
    if (page.value.commits.some(({ events = [] }) => events.some(decides))) return;
  }
}

/**
 * Sends a handoff until it is answered. `again` means that it was sent before.
 * @param {Client} client
 * @param {Ask} ask
 * @param {Handoff} handoff
 * @param {RequestOptions & { onPaused?: (why: UnavailableError) => void }} options
 * @param {boolean} [again]
 * @returns {Promise<Outcome>}
 */
async function sendOnce(client, ask, handoff, { onPaused, ...options }, again = false) {
  const townId = handoff?.proposal?.townId;
  const { msg, doubt } = await ask("handoff", handoff, options, () => absent(client, townId), (why) => {
    if (isWait(why.code)) onPaused?.(new UnavailableError(why.code, why.message));
  });
  const result = await verified(json(msg), options.revision);
  const runId = msg.headers?.get("Run-Id") ?? "";
  if (!doubt && !again || result.status !== "duplicate") return { result, runId };
  const first = await firstOf(client, handoff, result, options);
  return first ? { ...first, duplicate: result } : { result, runId };
}

/**
 * Implements `dryRun` of the client.
 * @param {Ask} ask
 * @param {Handoff} handoff
 * @param {RequestOptions} options
 * @returns {Promise<{ result: Result, apply?: string }>}
 */
export async function dryRun(ask, handoff, options) {
  const headers = { ...options.headers, "Dry-Run": "true" };
  const { msg } = await ask("handoff", handoff, { ...options, headers });
  const result = await verified(json(msg), options.revision);
  if (msg.headers?.get("Dry-Run") !== "true") {
    throw new UnavailableError("INVALID_ANSWER",
      `this server does not know dry runs: it carried the handoff out as run ${msg.headers?.get("Run-Id")}`);
  }
  return { result, apply: msg.headers.get("Dry-Run-Apply") || undefined };
}

/**
 * Returns the result that a duplicate names, if it is of the same handoff.
 * @param {Client} client
 * @param {Handoff} handoff
 * @param {Result} duplicate
 * @param {RequestOptions} options
 */
async function firstOf(client, handoff, duplicate, options) {
  try {
    const first = await client.result(handoff.idempotencyKey, { ...options, townId: handoff.proposal.townId });
    const named = duplicate.evaluation.duplicateCheck.duplicateOf;
    return first.result.resultId === named && first.result.handoffId === handoff.handoffId ? first : null;
  } catch {
    return null; // the duplicate answers the call too
  }
}

/**
 * Returns an error if a handoff for a town waits for an absent game; null if it does not, or the server does not
 * answer.
 * @param {Client} client
 * @param {string} townId
 */
async function absent(client, townId) {
  const town = await client.town(townId, { timeout: 2000 }).catch(() => null);
  if (!town?.pendingRunId || !town.pluginAbsentSince) return null;
  return new UnavailableError("PLUGIN_ABSENT", `the town ${JSON.stringify(townId)} has had no plugin since ` +
    `${town.pluginAbsentSince}, and the handoff is the command of run ${town.pendingRunId} or waits behind it; ` +
    "sent again it gets its result");
}
