/**
 * A machine code with a sentence for people, and where in the request it went wrong.
 * @typedef {{ path: string, message: string }} Violation
 */

/**
 * The server answered with an error: it refused (`status` 4xx), or was in trouble itself (5xx).
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
    /** The machine code, such as UNKNOWN_TOWN; UNKNOWN where the reply had none. */
    this.code = code;
    /** Where the request is wrong, by JSON path. */
    this.details = details;
    /** How long the server asks to wait; 0 where asking again makes no sense. */
    this.retryAfterMs = retryAfterMs;
    /** The run that the answer names, such as that of a handoff which is being applied. */
    this.runId = runId;
  }
}

/**
 * No answer came in time. The request may have been carried out or not; a handoff may be sent again
 * as it is, because the server accepts its key at most once.
 *
 * `code` is TIMEOUT, NO_RESPONDERS, PERMISSION_DENIED, CONNECTION or ABORTED; TOWN_PAUSED or
 * WORLD_PAUSED where a handoff waits for the end of a pause, PLUGIN_ABSENT where it waits for a game
 * that is away; INVALID_ANSWER where the answer is not what the contract says.
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
