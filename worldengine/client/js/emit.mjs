import { sha256 } from "./canonical.mjs";
import { transitions } from "./contract.gen.mjs";

/** @import { Client, RequestOptions } from "./client.mjs" */
/** @import { RunEvent } from "./types.mjs" */

/**
 * The run that an Emitter emits events of.
 * @typedef {object} RunIdentity
 * @property {string} runId
 * @property {string} tenantId
 * @property {string} projectId
 * @property {string} environmentId
 * @property {string} planId
 * @property {string} planVersion
 */

/**
 * An event as the append authority has persisted it. `idempotent` means that the run had it before.
 * @typedef {object} Appended
 * @property {string} eventId
 * @property {number} runSeq
 * @property {string} persistedAt
 * @property {boolean} idempotent
 */

/**
 * The event is invalid in the state of its run or step attempt that the emitter knows. It was not sent, and the
 * emitter sends no other event of that run or step attempt (RunEvents v2.0.1, section 5.3, layer 1).
 */
export class InvalidTransitionError extends Error {
  /** @param {string} eventType @param {string} entity @param {string} expectedState @param {string} actualState */
  constructor(eventType, entity, expectedState, actualState) {
    super(`${eventType} is not valid for ${entity}: it is ${actualState}, not ${expectedState}`);
    this.name = "InvalidTransitionError";
    /** The payload of the report that section 5.3 requires. */
    this.payload = { invalidTransitionDetected: true, expectedState, actualState, attemptedEventType: eventType };
  }
}

/**
 * Emits the events of one run from another process than the engine, such as a plugin, one at a time. An event gets its
 * eventId before it is sent, so that each retry has the same one. After a restart of the emitter the event gets another
 * eventId, but the append authority stores an event once, by its idempotencyKey. The emitter keeps the eventId that the
 * authority returns (section 2.5.1).
 */
export class Emitter {
  #client;
  #townId;
  #run;
  #engineAttemptId;
  /** The EventIdRegistry: the eventId by idempotencyKey. @type {Map<string, string>} */
  #ids = new Map();
  /** The persisted events by idempotencyKey. @type {Map<string, Appended>} */
  #stored = new Map();
  /** The status of the run ("") and of each step attempt. @type {Map<string, string>} */
  #status = new Map();
  /** @type {Map<string, InvalidTransitionError>} */
  #stopped = new Map();
  /** @type {Promise<unknown>} */
  #turn = Promise.resolve();

  /**
   * @param {Client} client
   * @param {{ townId: string, run: RunIdentity, engineAttemptId?: number }} options
   */
  constructor(client, { townId, run, engineAttemptId = 1 }) {
    this.#client = client;
    this.#townId = townId;
    this.#run = run;
    this.#engineAttemptId = engineAttemptId;
  }

  /**
   * Tells the emitter of an event that the run has: from another producer, or from before a restart.
   * @param {Pick<RunEvent, "eventId" | "eventType" | "idempotencyKey" | "runSeq" | "persistedAt" | "stepId"
   *   | "logicalAttemptId">} event
   */
  observe({ eventId, eventType, idempotencyKey, runSeq, persistedAt, stepId, logicalAttemptId }) {
    if (this.#stored.has(idempotencyKey)) return;
    this.#ids.set(idempotencyKey, eventId);
    this.#stored.set(idempotencyKey, { eventId, runSeq, persistedAt, idempotent: true });
    if (this.#refusal(eventType, stepId, logicalAttemptId) !== null) return;
    const move = moveOf(eventType);
    if (move && !move.stays) this.#status.set(entityOf(stepId, logicalAttemptId), move.to);
  }

  /**
   * Appends an event, and returns it as it is persisted. A repeated event is stored once. An event of a step has
   * `stepId`, and `attempt` unless it is the first attempt. It throws an InvalidTransitionError, or an error of
   * `request`.
   * @param {string} eventType
   * @param {RequestOptions & { stepId?: string, attempt?: number, payload?: object }} [options]
   * @returns {Promise<Appended>}
   */
  emit(eventType, options = {}) {
    const emitted = this.#turn.then(() => this.#emit(eventType, options));
    this.#turn = emitted.catch(() => {});
    return emitted;
  }

  /**
   * @param {string} eventType
   * @param {RequestOptions & { stepId?: string, attempt?: number, payload?: object }} options
   * @returns {Promise<Appended>}
   */
  async #emit(eventType, { stepId, attempt = 1, payload, ...options }) {
    const { runId, planId, planVersion } = this.#run;
    const key = await idempotencyKey({ runId, stepId, attempt, eventType, planId, planVersion });
    const before = this.#stored.get(key);
    if (before) return { ...before, idempotent: true };
    const entity = entityOf(stepId, attempt);
    const refusal = this.#stopped.get(entity) ?? this.#refusal(eventType, stepId, attempt);
    if (refusal) {
      this.#stopped.set(entity, refusal);
      throw refusal;
    }
    const eventId = this.#ids.get(key) ?? crypto.randomUUID();
    this.#ids.set(key, eventId);
    const event = {
      ...this.#run, eventId, eventType, stepId, payload, idempotencyKey: key, emittedAt: new Date().toISOString(),
      engineAttemptId: this.#engineAttemptId, logicalAttemptId: attempt,
    };
    const { appended: [appended] } =
      await this.#client.request("run.append", { townId: this.#townId, events: [event] }, options);
    this.observe({ ...event, ...appended });
    return appended;
  }

  /**
   * Returns an error if an event is invalid now, or null.
   * @param {string} eventType @param {string | undefined} stepId @param {number} attempt
   */
  #refusal(eventType, stepId, attempt) {
    const move = moveOf(eventType), run = this.#status.get("") ?? "PENDING";
    if (!move) return null; // consumers change nothing for it
    if (move.ofStep && ["COMPLETED", "FAILED", "CANCELLED"].includes(run)) {
      return new InvalidTransitionError(eventType, "a step of the run", "RUNNING or PAUSED", run);
    }
    const now = this.#status.get(entityOf(stepId, attempt)) ?? "PENDING";
    if (move.from.some((from) => from === now)) return null;
    const entity = stepId === undefined ? "the run" : `step ${stepId}, attempt ${attempt}`;
    return new InvalidTransitionError(eventType, entity, move.from.join(" or "), now);
  }
}

/**
 * Returns the idempotencyKey of an event (RunEvents v2.0.1, section 3.1). An event of the run has no stepId.
 * @param {{ runId: string, stepId?: string, attempt: number, eventType: string, planId: string,
 *   planVersion: string }} event
 */
export const idempotencyKey = ({ runId, stepId, attempt, eventType, planId, planVersion }) =>
  sha256([runId, stepId ?? "RUN", attempt, eventType, planId, planVersion].join("|"));

/** @param {string | undefined} stepId @param {number} attempt */
const entityOf = (stepId, attempt) => (stepId === undefined ? "" : `${attempt} ${stepId}`);

/**
 * @param {string} eventType
 * @returns {{ ofStep: boolean, from: readonly string[], to: string, stays?: boolean } | null}
 */
const moveOf = (eventType) => (Object.hasOwn(transitions, eventType)
  ? transitions[/** @type {keyof typeof transitions} */ (eventType)] : null);
