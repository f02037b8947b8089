/**
 * A place in the request, a JSON Pointer, and its defect.
 * @typedef {{ path: string, message: string }} Violation
 */

/**
 * An error reply: the server refuses the request (`status` 4xx), or has a problem (5xx).
 * docs/contracts.md lists the codes.
 */
export class ReplyError extends Error {
  /**
   * @param {number} status
   * @param {string} code
   * @param {string} message
   * @param {Violation[]} details
   * @param {number} retryAfterMs
   * @param {string} [runId]
   */
  constructor(status, code, message, details = [], retryAfterMs = 0, runId = undefined) {
    super(message);
    this.name = "ReplyError";
    /** The header Nats-Service-Error-Code, such as 404. */
    this.status = status;
    /** The machine code, such as UNKNOWN_TOWN; UNKNOWN if the reply has none. */
    this.code = code;
    /** The defects of the request. */
    this.details = details;
    /** The pause before a repetition; 0 if a repetition is useless. */
    this.retryAfterMs = retryAfterMs;
    /** The run of the reply, such as the run of a handoff that is being applied. */
    this.runId = runId;
  }
}

/**
 * No answer came in time, or an invalid one. The request may have been carried out. A handoff may be
 * sent again without a change, since the server accepts its key at most once.
 *
 * `code` is TIMEOUT, NO_RESPONDERS, PERMISSION_DENIED, CONNECTION or ABORTED; TOWN_PAUSED or
 * WORLD_PAUSED if a handoff waits for the end of a pause, PLUGIN_ABSENT if it waits for an absent
 * game; INVALID_ANSWER if the answer is invalid.
 */
export class UnavailableError extends Error {
  /**
   * @param {string} code
   * @param {string} message
   * @param {unknown} [cause]
   */
  constructor(code, message, cause) {
    super(message, { cause });
    this.name = "UnavailableError";
    this.code = code;
  }
}
