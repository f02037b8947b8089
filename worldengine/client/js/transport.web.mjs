import { wsconnect } from "@nats-io/nats-core";

/** @import { ConnectionOptions } from "@nats-io/nats-core" */

/** Connects over WebSocket. @param {ConnectionOptions} options */
export const transport = (options) => wsconnect(options);

/** A browser has no environment variables. @returns {ConnectionOptions} */
export const environment = () => ({});
