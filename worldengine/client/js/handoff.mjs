import { hash } from "./canonical.mjs";
import { argumentValues, proposalTypes } from "./contract.gen.mjs";

/** @import { Handoff, Precondition, ProposalType, TownSummary } from "./types.mjs" */

/**
 * A proposal of an agent for a town.
 * @typedef {object} Wish
 * @property {ProposalType} type
 * @property {string} actorId
 * @property {Record<string, string>} args the type's one argument, such as `{ projectId: "wall" }`
 * @property {string} reason
 * @property {number} [priority] 0 to 1; 0.5
 * @property {string[]} [reasonTags]
 * @property {Precondition[]} [preconditions]
 * @property {string} [proposalId] for agents that name their proposals themselves
 */

/** The members of a wish, and those that a whole proposal.v2 has beside them: the town has these. */
const wishMembers = ["type", "actorId", "args", "reason", "priority", "reasonTags", "preconditions", "proposalId"];
const townMembers = ["schemaVersion", "townId", "snapshotHash", "decisionEpoch"];

/**
 * Refuses a type, a member or an argument that does not exist, with its path. The server checks the rest.
 * @param {Wish} wish
 */
function checked(wish) {
  const { type, args } = wish;
  const spec = Object.hasOwn(proposalTypes, type) && proposalTypes[type];
  if (!spec) throw new TypeError(`/proposal/type must be one of ${Object.keys(proposalTypes).join(", ")}, not ${type}`);
  const unknown = Object.keys(wish).find((member) => !wishMembers.includes(member) && !townMembers.includes(member));
  if (unknown) throw new TypeError(`/proposal/${unknown} does not exist; a proposal has ${wishMembers.join(", ")}`);
  const { argument } = spec, at = `/proposal/args/${argument}`, value = args?.[argument];
  const other = Object.keys(args ?? {}).find((member) => member !== argument);
  if (other) throw new TypeError(`/proposal/args/${other} does not exist; the args of ${type} have ${argument} alone`);
  if (!value) throw new TypeError(`${at} must be there: args must have ${argument}`);
  /** @type {readonly string[]} */
  const values = type in argumentValues ? argumentValues[/** @type {keyof typeof argumentValues} */ (type)] : [];
  if (values.length && !values.includes(value)) {
    throw new TypeError(`${at} must be one of ${values.join(", ")}, not ${value}`);
  }
  return spec;
}

/**
 * Makes the handoff of a proposal for a town, in the state in which the agent decided. It throws a TypeError for a
 * type, a member or an argument that does not exist; the server checks the rest.
 * @param {Pick<TownSummary, "townId" | "snapshotHash" | "decisionEpoch">} town
 * @param {Wish} wish
 * @returns {Promise<Handoff>}
 */
export async function makeHandoff(town, wish) {
  const { townId, snapshotHash, decisionEpoch } = town;
  const { type, actorId, args, reason, priority = 0.5, reasonTags = [], preconditions = [] } = wish;
  const { argument, verb } = checked(wish);
  const proposalId = wish.proposalId ??
    `proposal_${await hash({ actorId, townId, type, args, priority, decisionEpoch, snapshotHash })}`;
  const command = `${verb} ${townId} ${args[argument]}`;
  return {
    schemaVersion: "execution-handoff.v1",
    handoffId: `handoff_${await hash({ proposalId, command })}`,
    advisory: true, proposalId, idempotencyKey: proposalId, snapshotHash, decisionEpoch,
    proposal: {
      schemaVersion: "proposal.v2", proposalId, snapshotHash, decisionEpoch, type, actorId, townId,
      priority, reason, reasonTags, args, preconditions,
    },
    command,
    executionRequirements: {
      expectedSnapshotHash: snapshotHash, expectedDecisionEpoch: decisionEpoch, preconditions,
    },
  };
}
