import { waitReasons } from "./contract.gen.mjs";
import { ReplyError, UnavailableError } from "./errors.mjs";

/** @import { NatsConnection, MsgHdrs, Msg } from "@nats-io/nats-core" */

/**
 * One request with its repetitions.
 * @typedef {object} Exchange
 * @property {NatsConnection} nc
 * @property {string} subject
 * @property {Uint8Array} payload
 * @property {MsgHdrs} headers
 * @property {number} timeout the time for all of it, in milliseconds
 * @property {number} waitMs how long the server may wait before it answers
 * @property {boolean} safe it may be repeated although it may have been carried out
 * @property {() => boolean} served a server has answered on this connection before
 * @property {() => Promise<UnavailableError | null>} waits is called before a repetition because no answer came, and
 *   returns an error if the request waits
 * @property {(error: ReplyError | UnavailableError) => void} refused is called with each refusal after which the
 *   request is repeated, and with the errors of waits
 * @property {(listener: () => void) => () => void} onReconnect
 * @property {AbortSignal} [signal]
 */

/** How long the first attempt waits for its answer before the next one, in ms, after the wait of the server: at most
 * half of the rest of the call. It doubles with each attempt, up to the longest. */
const resendAfter = 2000, longestResend = 30_000;
/** The pause if no server is subscribed. */
const absentPause = 250;

/**
 * Says whether an error code means that a handoff waits.
 * @param {string} code
 */
export const isWait = (code) => /** @type {readonly string[]} */ (waitReasons).includes(code);

/** @typedef {{ msg: Msg } | { error: unknown } | { due: true } | { back: true }
 *   | { paused: UnavailableError | null } | { aborted: unknown }} Happening */

/**
 * Repeats a request until any attempt is answered: if no answer comes, and after 429 and 503 if the
 * server says so, a random time later. `doubt` means that an earlier attempt may have been carried
 * out.
 * @param {Exchange} x
 * @returns {Promise<{ msg: Msg, doubt: boolean }>}
 */
export async function exchange(x) {
  const deadline = performance.now() + x.timeout; // not the clock, which may be set
  /** @type {Happening[]} */
  const happened = [];
  let wake = () => {};
  const happens = (/** @type {Happening} */ what) => { happened.push(what); wake(); };
  const left = () => deadline - performance.now();

  let unanswered = 0, doubt = false, checking = false, answered = false;
  let interval = x.waitMs + Math.min(resendAfter, (x.timeout - x.waitMs) / 2);
  /** @type {UnavailableError | null} */
  let paused = null;
  /** @type {ReplyError | UnavailableError | undefined} */
  let lastError;
  /** @type {ReturnType<typeof setTimeout> | undefined} */
  let timer;
  const dueIn = (/** @type {number} */ ms) => {
    clearTimeout(timer);
    timer = setTimeout(happens, Math.max(1, Math.min(ms, left())), { due: true });
  };
  const attempt = () => {
    if (unanswered > 0) {
      if (!x.safe) { // it may have been carried out
        dueIn(left());
        return;
      }
      doubt = true;
    }
    unanswered++;
    x.nc.request(x.subject, x.payload, { timeout: Math.max(1, left()), headers: x.headers }).then(
      (msg) => happens({ msg }), (error) => happens({ error }));
    dueIn(x.safe ? interval : left());
    interval = Math.min(2 * interval, longestResend);
  };
  const late = () => {
    if (lastError && (!unanswered || lastError.code === "EXECUTION_IN_PROGRESS")) return lastError;
    if (paused) return paused;
    // The attempt without an answer waits for the same reason.
    return lastError && isWait(lastError.code) ? lastError : timedOut(x);
  };
  const abort = () => happens({ aborted: x.signal?.reason });
  x.signal?.addEventListener("abort", abort);
  const off = x.onReconnect(() => happens({ back: true }));
  try {
    if (x.signal?.aborted) abort(); else attempt();
    for (;;) {
      while (happened.length === 0) await new Promise((resolve) => { wake = () => resolve(null); });
      const what = /** @type {Happening} */ (happened.shift());
      if ("aborted" in what) throw new UnavailableError("ABORTED", "given up by its caller", what.aborted);
      if ("msg" in what) {
        unanswered--;
        answered = true;
        const refused = replyError(what.msg);
        if (!refused) return { msg: what.msg, doubt };
        const rest = left() - refused.retryAfterMs;
        if (!isRepeatable(refused, x.safe) || rest <= 0) throw refused;
        if (refused.status === 503) doubt = true; // the handoff may be stored, and wait for the end of a pause
        lastError = refused;
        x.refused(refused);
        // Other clients may have been refused at the same moment, so the pause has a random part.
        dueIn(refused.retryAfterMs + Math.random() * Math.min(refused.retryAfterMs, rest / 2));
      } else if ("error" in what) {
        unanswered--;
        const error = unanswerable(what.error, x);
        // A server that has an unanswered attempt was there, too.
        const wasThere = x.served() || answered || unanswered > 0;
        if (error.code === "NO_RESPONDERS" && wasThere && absentPause < left()) {
          lastError = error;
          dueIn(absentPause);
        } else if (error.code === "TIMEOUT") {
          unanswered++; // it stays unanswered until the deadline
        } else {
          throw error;
        }
      } else if ("back" in what) {
        if (x.safe && unanswered > 0 && left() > 0) attempt();
      } else if ("paused" in what) {
        checking = false;
        paused = what.paused;
        if (left() <= 0) throw late();
        if (unanswered === 0) continue; // it was refused meanwhile, and is due after the pause
        if (paused) {
          x.refused(paused);
          dueIn(resendAfter); // the handoff waits in the town's queue
        } else {
          attempt();
        }
      } else if (left() <= 0) {
        throw late();
      } else if (unanswered > 0 && x.safe && !checking) {
        checking = true;
        x.waits().then((why) => happens({ paused: why }));
        dueIn(left());
      } else if (unanswered === 0 || !x.safe) {
        attempt();
      }
    }
  } finally {
    clearTimeout(timer);
    off();
    x.signal?.removeEventListener("abort", abort);
  }
}

/** @param {ReplyError} refused @param {boolean} safe */
function isRepeatable(refused, safe) {
  if (refused.retryAfterMs <= 0) return false;
  return refused.status === 429 || (refused.status === 503 && safe);
}

/** @param {Exchange} x */
function timedOut(x) {
  return new UnavailableError("TIMEOUT",
    `no answer on ${x.subject} within ${x.timeout} ms; the request may have been carried out`);
}

/**
 * Returns the error of a request without an answer.
 * @param {any} error
 * @param {Exchange} x
 */
function unanswerable(error, { subject, payload, nc }) {
  const names = [error?.name, error?.cause?.name];
  if (names.includes("InvalidArgumentError") && /max_payload/.test(error.message)) {
    return new ReplyError(413, "PAYLOAD_TOO_LARGE",
      `the request has ${payload.length} bytes, this NATS server takes ${nc.info?.max_payload}`);
  }
  if (names.includes("NoResponders")) {
    return new UnavailableError("NO_RESPONDERS",
      `no server answers on ${subject}: start handoffd with this world, or use the world that it serves`, error);
  }
  if (names.includes("TimeoutError")) return new UnavailableError("TIMEOUT", "no answer came in time", error);
  if (names.includes("PermissionViolationError")) {
    return new UnavailableError("PERMISSION_DENIED", `this user may not ask on ${subject}, or not read ` +
      "the answer in its inbox: use inboxPrefix _INBOX_<user>", error);
  }
  return new UnavailableError("CONNECTION", `the connection failed: ${error?.message ?? error}`, error);
}

/**
 * Returns the error of an error reply, or null for any other reply.
 * @param {Msg} msg
 * @returns {ReplyError | null}
 */
export function replyError(msg) {
  const status = msg.headers?.get("Nats-Service-Error-Code");
  if (!status) return null;
  let { code = "UNKNOWN", message = "", details = [] } = /** @type {any} */ ({});
  try {
    ({ code = code, message = message, details = details } = JSON.parse(msg.string()).error ?? {});
  } catch { /* the headers say enough */ }
  return new ReplyError(Number(status) || 500, code, message || msg.headers?.get("Nats-Service-Error") || code,
    details, Number(msg.headers?.get("Retry-After-Ms")) || 0, msg.headers?.get("Run-Id") || undefined);
}
