import "./oldest.node.mjs";
import { readFileSync } from "node:fs";
import { wsconnect } from "@nats-io/nats-core";
import { connect, credsAuthenticator, nkeyAuthenticator } from "@nats-io/transport-node";

/** @import { ConnectionOptions } from "@nats-io/nats-core" */

/**
 * Connects over TCP, or over WebSocket to a ws:// or wss:// URL. Node has WebSocket from version 22 on.
 * @param {ConnectionOptions} options
 */
export async function transport(options) {
  const servers = [options.servers ?? []].flat();
  if (!servers.some((url) => /^wss?:/.test(url))) return connect(options);
  if (typeof WebSocket === "undefined") {
    throw new Error(`Node ${process.versions.node} has no WebSocket: take Node 22 or later, or a nats:// URL`);
  }
  return wsconnect(options);
}

/**
 * Returns the options in the environment variables of the NATS command line: NATS_URL,
 * NATS_USER, NATS_PASSWORD, NATS_TOKEN, NATS_CREDS, NATS_NKEY, NATS_CA, NATS_CERT, NATS_KEY and
 * NATS_INBOX_PREFIX.
 * @param {Record<string, string | undefined>} [env]
 * @returns {ConnectionOptions}
 */
export function environment(env = process.env) {
  const file = (/** @type {string} */ name) => readFileSync(name);
  const { NATS_USER: user, NATS_PASSWORD: pass, NATS_CREDS, NATS_NKEY, NATS_CA, NATS_CERT, NATS_KEY } = env;
  const token = env.NATS_TOKEN || (pass ? undefined : user);
  const inboxPrefix = env.NATS_INBOX_PREFIX;
  return {
    ...(env.NATS_URL && { servers: env.NATS_URL.split(",").map((url) => url.trim()) }),
    ...(token ? { token } : user && { user, pass }),
    ...(inboxPrefix && { inboxPrefix }),
    ...(NATS_CREDS && { authenticator: credsAuthenticator(file(NATS_CREDS)) }),
    ...(NATS_NKEY && { authenticator: nkeyAuthenticator(new TextEncoder().encode(file(NATS_NKEY).toString().trim())) }),
    ...((NATS_CA || NATS_CERT) && { tls: { caFile: NATS_CA, certFile: NATS_CERT, keyFile: NATS_KEY } }),
  };
}
