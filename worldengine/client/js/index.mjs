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
 * Connects to a world, and reconnects for as long as it is not closed. The inbox of a user is
 * `_INBOX_<user>`, as worlds with access control have it, unless inboxPrefix says otherwise. The
 * options are those of NATS; `world` and `callTimeout` are the client's: `main`, and how long a call
 * may take, 30,000 milliseconds.
 *
 * The first connection must succeed, unless `waitOnFirstConnect` is set: it throws an UnavailableError with the
 * code CONNECTION.
 * @param {ConnectionOptions & { world?: string, callTimeout?: number }} [options]
 * @returns {Promise<Client>}
 */
export async function connect({ world, callTimeout, ...options } = {}) {
  checkedWorld(world);
  if (callTimeout !== undefined) milliseconds(callTimeout);
  let nc;
  try {
    nc = await transport({
      name: "worldengine-client", maxReconnectAttempts: -1,
      ...(options.user && options.pass && { inboxPrefix: `_INBOX_${options.user}` }),
      ...options,
    });
  } catch (error) {
    throw notConnected(options.servers, error);
  }
  return new Client(nc, { world, timeout: callTimeout });
}

/**
 * Returns why there is no connection, without the secrets that a URL may have.
 * @param {string | string[] | undefined} servers
 * @param {any} error
 */
function notConnected(servers = "127.0.0.1:4222", error) {
  const urls = [servers].flat().map((url) => String(url).replace(/[^/]*@/, "")).join(", ");
  const hint = error?.name === "AuthorizationError" ? ": it refuses the user, its password or its key"
    : error?.name === "ConnectionError" ? "; start handoffd, or give the address that it listens on" : "";
  return new UnavailableError("CONNECTION", `cannot connect to ${urls}: ${error?.message ?? error}${hint}`, error);
}
