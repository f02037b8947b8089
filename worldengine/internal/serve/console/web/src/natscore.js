/**
 * Stands in the bundle for the index of @nats-io/nats-core, which is CommonJS, so that all of it comes along: the
 * page connects and makes headers.
 */
export { headers } from "../node_modules/@nats-io/nats-core/lib/headers.js";
export { wsconnect } from "../node_modules/@nats-io/nats-core/lib/ws_transport.js";
