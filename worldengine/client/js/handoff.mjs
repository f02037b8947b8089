import { hash } from "./canonical.mjs";
import { proposalTypes } from "./contract.gen.mjs";

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

/**
 * Makes the handoff of a proposal for a town, in the state in which the agent decided. The server
 * checks it.
 * @param {Pick<TownSummary, "townId" | "snapshotHash" | "decisionEpoch">} town
 * @param {Wish} wish
 * @returns {Promise<Handoff>}
 */
export async function makeHandoff(town, wish) {
  const { townId, snapshotHash, decisionEpoch } = town;
  const { type, actorId, args, reason, priority = 0.5, reasonTags = [], preconditions = [] } = wish;
  const spec = Object.hasOwn(proposalTypes, type) && proposalTypes[type];
  if (!spec) throw new TypeError(`type must be one of ${Object.keys(proposalTypes).join(", ")}, not ${type}`);
  const { argument, verb } = spec;
  if (!args?.[argument]) throw new TypeError(`args must have ${argument}`);
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
