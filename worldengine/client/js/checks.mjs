// Checks of the client's settings and of the server's answers.
import { UnavailableError } from "./errors.mjs";
import { isRevision1, verifyResult } from "./result.mjs";

/** @import { Result } from "./types.mjs" */

/** The longest timer. */
const longest = 2 ** 31 - 1;

/** @param {number} timeout */
export function milliseconds(timeout) {
  if (typeof timeout !== "number" || Number.isNaN(timeout)) {
    throw new RangeError(`a timeout is a number of milliseconds, not ${timeout}`);
  }
  return Math.min(timeout, longest);
}

/** @param {string} [world] */
export function checkedWorld(world = "main") {
  if (!/^[A-Za-z0-9_-]{1,64}$/.test(world)) {
    throw new RangeError(`a world's name is 1 to 64 of A-Z a-z 0-9 _ -, not ${JSON.stringify(world)}`);
  }
  return world;
}

/** @param {import("@nats-io/nats-core").Msg} msg */
export function json(msg) {
  try {
    return msg.json();
  } catch (error) {
    throw new UnavailableError("INVALID_ANSWER", "the answer is no JSON", error);
  }
}

/** @param {any} result @param {0 | 1} [revision] @returns {Promise<Result>} */
export async function verified(result, revision) {
  let wrong = await verifyResult(result);
  if (!wrong && revision !== undefined && isRevision1(result) !== (revision === 1)) {
    wrong = `it is not of revision ${revision}`;
  }
  if (wrong) throw new UnavailableError("INVALID_ANSWER", `the answer is not a valid result: ${wrong}`);
  return result;
}
