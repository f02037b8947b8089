// The types of messages. `handoffctl schema` has their JSON Schemas.

/**
 * A snapshot.v1: the state of one town.
 * @typedef {object} Snapshot
 * @property {"snapshot.v1"} schemaVersion
 * @property {string} townId
 * @property {number} day
 * @property {{ id: string, title: string, description?: string, reward?: number } | null} mission
 * @property {{ id: string, title: string, complexity?: number }[]} sideQuests
 * @property {{ threat: number, scarcity: number, hope: number, dread: number }} pressure
 * @property {{ id: string, name: string, progress: number,
 *   status: "planning" | "active" | "blocked" | "complete" }[]} projects
 * @property {string | null} latestNetherEvent
 */

/**
 * A town without its state. Its game has been absent since pluginAbsentSince.
 * @typedef {object} TownSummary
 * @property {string} townId
 * @property {string} snapshotHash
 * @property {number} decisionEpoch
 * @property {number} revision
 * @property {"local" | "plugin" | "rcon"} apply
 * @property {string} [pendingRunId]
 * @property {boolean} [paused]
 * @property {string} [pluginAbsentSince]
 */

/**
 * An absent plugin: since when, the last answer and the next request of the command that waits, and the remedy.
 * @typedef {{ townId: string, since: string, runId?: string, attempt?: number, said?: string, nextAt?: string, todo: string }} AbsentPlugin
 */

/**
 * A town of a list; waiting counts the proposals that wait for a person's approval.
 * @typedef {TownSummary & { waiting?: number, inDoubt?: boolean }} ListedTown
 */

/**
 * A town with its state.
 * @typedef {TownSummary & { snapshot: Snapshot, approval?: ProposalType[], pluginAbsent?: AbsentPlugin }} Town
 */

/**
 * A world in a list. The figures are left out if it is not served, or if the user may not see them.
 * @typedef {{ world: string, state: "served" | "standby" | "unserved", why?: string,
 *   writer?: { id: string, name: string, version: string }, towns?: number, handoffsPerMinute?: number,
 *   waiting?: number, alerts?: number, paused?: boolean }} ListedWorld
 */

/** @typedef {keyof typeof import("./contract.gen.mjs").proposalTypes} ProposalType */

/**
 * A world-memory-context.v1: things that happened in a town, or in all of them, the newest first. `at` is a
 * decision epoch, and `sourceRecordId` a run. The town summary has more members.
 * @typedef {object} Memory
 * @property {"world-memory-context.v1"} type
 * @property {1} schemaVersion
 * @property {{ townId: string | null, factionId: string | null, chronicleLimit: number, historyLimit: number }} scope
 * @property {{ sourceRecordId: string, entryType: string, message: string, at: number, townId: string | null,
 *   factionId: string | null, sourceRefId: string | null, tags: string[] }[]} recentChronicle
 * @property {{ sourceType: string, handoffId: string | null, proposalType: string | null, command: string | null,
 *   authorityCommands: string[], status: Status, reasonCode: string, kind: string, at: number,
 *   townId: string | null, summary: string }[]} recentHistory
 * @property {{ townId: string, chronicleCount: number, historyCount: number, lastChronicleAt: number | null,
 *   lastHistoryAt: number | null, hope: number | null, dread: number | null, activeMajorMissionId: string | null,
 *   activeProjectCount: number, executionCounts: Record<Status, number> }} [townSummary]
 */

/**
 * @typedef {object} Precondition
 * @property {string} kind
 * @property {string} [targetId]
 * @property {string} [field]
 * @property {string | number | boolean | null} [expected]
 */

/**
 * A proposal.v2.
 * @typedef {object} Proposal
 * @property {"proposal.v2"} schemaVersion
 * @property {string} proposalId
 * @property {string} snapshotHash
 * @property {number} decisionEpoch
 * @property {ProposalType} type
 * @property {string} actorId
 * @property {string} townId
 * @property {number} priority
 * @property {string} reason
 * @property {string[]} reasonTags
 * @property {Record<string, string>} args
 * @property {Precondition[]} [preconditions]
 */

/**
 * An execution-handoff.v1.
 * @typedef {object} Handoff
 * @property {"execution-handoff.v1"} schemaVersion
 * @property {string} handoffId
 * @property {true} advisory
 * @property {string} proposalId
 * @property {string} idempotencyKey
 * @property {string} snapshotHash
 * @property {number} decisionEpoch
 * @property {Proposal} proposal
 * @property {string} command
 * @property {{ expectedSnapshotHash: string, expectedDecisionEpoch: number,
 *   preconditions: Precondition[] }} executionRequirements
 */

/** @typedef {"executed" | "failed" | "rejected" | "stale" | "duplicate"} Status */

/**
 * @typedef {object} Evaluation
 * @property {{ evaluated: boolean, passed: boolean,
 *   failures: { kind: string, detail: string }[] }} preconditions
 * @property {{ evaluated: boolean, passed: boolean, actualSnapshotHash: string | null,
 *   actualDecisionEpoch: number | null }} staleCheck
 * @property {{ evaluated: boolean, duplicate: boolean, duplicateOf: string | null }} duplicateCheck
 */

/**
 * The members that both revisions of an execution-result.v1 have.
 * @typedef {object} ResultCore
 * @property {string} resultId
 * @property {string} handoffId
 * @property {string} proposalId
 * @property {string} idempotencyKey
 * @property {string} snapshotHash
 * @property {number} decisionEpoch
 * @property {string} command
 * @property {Status} status
 * @property {boolean} accepted
 * @property {boolean} executed
 * @property {string} reasonCode
 * @property {Evaluation} evaluation
 * @property {{ postExecutionSnapshotHash: string | null,
 *   postExecutionDecisionEpoch: number | null }} [worldState]
 */

/** @typedef {ResultCore & { schemaVersion: "execution-result.v1" }} Result0 */

/**
 * @typedef {ResultCore & { type: "execution-result.v1", schemaVersion: 1, executionId: string,
 *   actorId: string, townId: string, proposalType: string, authorityCommands: string[],
 *   embodiment?: { backendHint?: string | null, actions?: object[] } }} Result1
 */

/** An execution-result.v1, of either revision.
 * @typedef {Result0 | Result1} Result */

/**
 * A run event, as it is stored.
 * @typedef {object} RunEvent
 * @property {string} eventId
 * @property {string} eventType
 * @property {string} runId
 * @property {number} runSeq
 * @property {string} emittedAt
 * @property {string} idempotencyKey
 * @property {string} persistedAt
 * @property {string} planId
 * @property {string} [stepId]
 * @property {number} logicalAttemptId
 * @property {Record<string, unknown>} [payload]
 * @property {string} [appendedBy] the producer that appended it; the engine's own events have none
 */

/**
 * A commit of the world's log. `revision`, `epoch` and `hash` are of the town's state after it, if it has one. A
 * damaged commit has a cursor only.
 * @typedef {object} Commit
 * @property {string} cursor
 * @property {boolean} [damaged]
 * @property {string} at the persistedAt of the events
 * @property {string} [townId]
 * @property {string} cause as in town.history, or "refused", "waiting", "appended", "signal" or "settings"
 * @property {number} [revision]
 * @property {number} [epoch]
 * @property {string} [hash]
 * @property {string} [runId]
 * @property {RunEvent[]} [events]
 */

/** The reason why commits may be missing, and the cursor from which following continues.
 * @typedef {{ reason: "GAP" | "DAMAGED" | "INVALID_CURSOR", cursor: string }} Loss */

/**
 * A change of a town without a run, such as by `town.put`.
 * @typedef {Commit & { townId: string, revision: number, epoch: number, hash: string }} Change
 */

/**
 * The state of a run, as `run.get` gives it.
 * @typedef {object} Run
 * @property {string} runId
 * @property {string} status
 * @property {number} lastEventSeq
 * @property {Record<string, unknown>} [metadata]
 * @property {string} [townId]
 * @property {string} [actorId] who proposed, or gave the signal
 * @property {string} [type] of the proposal, or the signal
 * @property {string} [command]
 * @property {string} [resultStatus]
 * @property {string} [reasonCode]
 * @property {string} [arrivedAt]
 * @property {number} [tookMs]
 * @property {AbsentPlugin} [pluginAbsent] the plugin that the command waits for
 */

/**
 * An alert of the world.
 * @typedef {object} Alert
 * @property {number} seq its number, for acknowledgeAlert
 * @property {string} id its identity: two messages about the same alert have the same id
 * @property {string} code
 * @property {"P1" | "P2" | "P3"} severity
 * @property {string} at
 * @property {string} [message]
 * @property {string} [runId]
 * @property {string} [townId]
 * @property {number} [more] the number of further events that this alert of the run stands for
 * @property {{ by: string, at: string, reason?: string }} [acknowledged]
 */

/**
 * A proposal that needs a person's approval, or needed one. `expected` are the changes that the built-in rules predict,
 * by JSON Pointer. `expectedFailure` is the reason if they predict a failure.
 * @typedef {object} Approval
 * @property {string} townId
 * @property {string} handoffId for decide
 * @property {string} [handoffHash] identifies the handoff: several handoffs may have the same id
 * @property {"waiting" | "approved" | "denied" | "used" | "stale" | "expired"} status
 * @property {string} [runId] the run that executed the handoff or, before that, the run that asked
 * @property {string} command
 * @property {Proposal} proposal
 * @property {string} at
 * @property {string} expiresAt
 * @property {string} [decidedBy]
 * @property {string} [decidedAt]
 * @property {string} [reason]
 * @property {{ path: string, from?: unknown, to?: unknown, fromBytes?: number, toBytes?: number }[]} expected a large
 *   value is left out, and has its size instead
 * @property {number} [expectedLeftOut] the number of further changes
 * @property {string} [expectedFailure]
 */

/**
 * The reply to a decision. `runId` and `result` are of the approved handoff, if it was submitted or executed before.
 * `notSubmitted` is the reason if there is no result.
 * @typedef {object} Decided
 * @property {string} townId
 * @property {string} handoffId
 * @property {"approve" | "reject"} decision
 * @property {string} signalId the run of the decision
 * @property {string} actorId
 * @property {string} [reason]
 * @property {string} at
 * @property {string} [runId]
 * @property {Result} [result]
 * @property {{ code: string, message: string }} [notSubmitted]
 */

export {};
