import { hash } from "./canonical.mjs";

/** @import { Result, Result1 } from "./types.mjs" */

/**
 * Reports whether a result has the form of revision 1.
 * @param {Result} result
 * @returns {result is Result1}
 */
export const isRevision1 = (result) => result.schemaVersion === 1;

/**
 * Returns the id that a result must have: a hash of the members that its revision hashes.
 * @param {Result} result
 * @returns {Promise<string>}
 */
export async function deriveResultId(result) {
  const { handoffId, status, accepted, executed, reasonCode, evaluation, worldState } = result;
  const both = { handoffId, status, accepted, executed, reasonCode, evaluation, worldState };
  if (!isRevision1(result)) return `result_${await hash(both)}`;
  const {
    type, schemaVersion, proposalId, actorId, townId, proposalType, command, authorityCommands, embodiment,
  } = result;
  return `result_${await hash({
    ...both, type, schemaVersion, proposalId, actorId, townId, proposalType, command,
    authorityCommands, embodiment,
  })}`;
}

/** The values of accepted and executed for each status. */
const booleans = {
  executed: [true, true], failed: [true, false],
  rejected: [false, false], stale: [false, false], duplicate: [false, false],
};

/**
 * Returns the defect of a value that is no valid execution-result.v1, or null: of its revision, the
 * booleans of its status, or its id, which is its hash.
 * @param {any} result
 * @returns {Promise<string | null>}
 */
export async function verifyResult(result) {
  if (result === null || typeof result !== "object" || Array.isArray(result)) return "it is no object";
  const one = result.type === "execution-result.v1" && result.schemaVersion === 1;
  if (!one && result.schemaVersion !== "execution-result.v1") return "it is no execution-result.v1";
  const required = booleans[/** @type {keyof typeof booleans} */ (result.status)];
  if (!required) return `its status is ${result.status}`;
  if (result.accepted !== required[0] || result.executed !== required[1]) {
    return `accepted and executed are not those of ${result.status}`;
  }
  if (result.idempotencyKey !== result.proposalId) return "idempotencyKey is not its proposalId";
  if (one && result.executionId !== result.resultId) return "executionId is not its resultId";
  const id = await deriveResultId(result);
  return result.resultId === id ? null : `resultId is not its hash, ${id}`;
}
