// worldengine-client asks a world engine over NATS: in Node over TCP, in browsers over WebSocket.
// docs/agents.md shows how to use it; docs/contracts.md has the verbs and the codes of errors.
import { checkedWorld, milliseconds } from "./checks.mjs";
import { Client } from "./client.mjs";
import { UnavailableError } from "./errors.mjs";
import { transport } from "#transport";

export { canonicalJson, hash, sha256 } from "./canonical.mjs";
export { Client } from "./client.mjs";
export { Emitter, InvalidTransitionError } from "./emit.mjs";
export { ReplyError, UnavailableError } from "./errors.mjs";
export { makeHandoff } from "./handoff.mjs";
export { deriveResultId, isRevision1, verifyResult } from "./result.mjs";
export { townToken, verbSubject } from "./subjects.mjs";
export { environment } from "#transport";

/** @import { ConnectionOptions } from "@nats-io/nats-core" */

/**
 * Connects to a world. The client reconnects until it is closed. The options are NATS's, `world`, which
 * is `main`, and `callTimeout`, the time for a call with all its repetitions: 30,000 milliseconds. The
 * default inboxPrefix of a user with a password is `_INBOX_<user>`, as access control requires.
 *
 * If the first connection fails it throws an UnavailableError with the code CONNECTION, unless
 * `waitOnFirstConnect` is set.
 * @param {ConnectionOptions & { world?: string, callTimeout?: number }} [options]
 * @returns {Promise<Client>}
 */
export async function connect({ world, callTimeout, ...options } = {}) {
  checkedWorld(world);
  if (callTimeout !== undefined) milliseconds(callTimeout);
  let nc;
  try {
    nc = await transport({
      // NATS's own interval, 2 minutes, would notice up to 6 minutes late that a node has vanished.
      name: "worldengine-client", maxReconnectAttempts: -1, pingInterval: 5_000,
      ...(options.user && options.pass && { inboxPrefix: `_INBOX_${options.user}` }),
      ...options,
    });
  } catch (error) {
    throw notConnected(options.servers, error);
  }
  // Only after a flush does the connection know how large the messages of its account may be.
  await nc.flush().catch(() => {}); // a lost connection is reported by a request
  return new Client(nc, { world, timeout: callTimeout });
}

/**
 * Returns the error of a failed connection, without the secrets of a URL.
 * @param {string | string[] | undefined} servers
 * @param {any} error
 */
function notConnected(servers = "127.0.0.1:4222", error) {
  const urls = [servers].flat().map((url) => String(url).replace(/[^/]*@/, "")).join(", ");
  const hint = error?.name === "AuthorizationError" ? ": it refuses the user, its password or its key"
    : error?.name === "ConnectionError" ? "; start handoffd, or give the address that it listens on" : "";
  return new UnavailableError("CONNECTION", `cannot connect to ${urls}: ${error?.message ?? error}${hint}`, error);
}
