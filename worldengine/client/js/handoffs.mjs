// How a handoff is sent, and what is made of its answer.
import { json, verified } from "./checks.mjs";
import { UnavailableError } from "./errors.mjs";
import { absent } from "./exchange.mjs";

/** @import { Msg } from "@nats-io/nats-core" */
/** @import { Client, Outcome, RequestOptions } from "./client.mjs" */
/** @import { ReplyError } from "./errors.mjs" */
/** @import { Handoff, Result } from "./types.mjs" */

/**
 * Asks a verb as the client does. `waits` returns why no answer comes, and `refused` is called with each refusal;
 * `doubt` says that an earlier attempt may have been accepted.
 * @typedef {(verb: string, body: unknown, options: RequestOptions,
 *   waits?: () => Promise<UnavailableError | null>,
 *   refused?: (error: ReplyError | UnavailableError) => void) => Promise<{ msg: Msg, doubt: boolean }>} Ask
 */

/**
 * As `send` of the client.
 * @param {Client} client
 * @param {Ask} ask
 * @param {Handoff} handoff
 * @param {RequestOptions & { onPaused?: (why: UnavailableError) => void }} options
 * @returns {Promise<Outcome>}
 */
export async function send(client, ask, handoff, { onPaused, ...options }) {
  const townId = handoff?.proposal?.townId;
  const { msg, doubt } = await ask("handoff", handoff, options, () => whyWaits(client, townId), (why) => {
    const { code, message } = why;
    if (["TOWN_PAUSED", "WORLD_PAUSED", "PLUGIN_ABSENT"].includes(code)) {
      onPaused?.(new UnavailableError(code, message));
    }
  });
  const result = await verified(json(msg), options.revision);
  const runId = msg.headers?.get("Run-Id") ?? "";
  if (!doubt || result.status !== "duplicate") return { result, runId };
  const first = await firstOf(client, handoff, result, options);
  return first ? { ...first, duplicate: result } : { result, runId };
}

/**
 * As `dryRun` of the client.
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
 * Returns the result that a duplicate names, if it is that of the same handoff.
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
    return null; // the duplicate is an answer too
  }
}

/**
 * Returns why a handoff for a town waits, for the end of a pause or for a game that is away; null where it does
 * not, or that cannot be told.
 * @param {Client} client
 * @param {string} townId
 */
async function whyWaits(client, townId) {
  /** @param {string} verb @param {object} body */
  const look = (verb, body) => client.request(verb, body, { timeout: 2000 }).catch(() => null);
  const town = await look("control.get", { townId });
  if (town?.status !== "PAUSED") return town && absent(await look("town.get", { townId }));
  const world = (await look("control.get", {}))?.status === "PAUSED";
  const by = town.pausedBy;
  return new UnavailableError(world ? "WORLD_PAUSED" : "TOWN_PAUSED",
    `${world ? "the world" : `the town ${JSON.stringify(townId)}`} is paused` +
    (by ? ` by ${by.actorId}${by.reason ? `: ${by.reason}` : ""}` : "") +
    "; the handoff waits, and is judged when the pause ends");
}
