// The connection to NATS. It is made in the background, comes back by itself, and tells changes of
// state, not attempts.
import { connect, credsAuthenticator, headers } from "@nats-io/transport-node";
import { randomUUID } from "node:crypto";
import { readFileSync } from "node:fs";
import { setTimeout as sleep } from "node:timers/promises";
import { allHostsSubject, applySubject, hostsSubject } from "./protocol.mjs";

const NAME = "plugin-minecraft";
const FIRST_WAIT_MS = 200;
const LONGEST_WAIT_MS = 10_000;
const HOST_WAIT_MS = 1000;

export class Link {
  state = "connecting";
  #config;
  #onRequest;
  #log;
  #nc;
  #closing = new AbortController();
  #attempts = 0;
  #asker = randomUUID(); // so that it does not answer itself

  // onRequest(text, reply) takes a request; reply(answer) sends its answer.
  constructor(config, { onRequest, log = () => {} }) {
    this.#config = config;
    this.#onRequest = onRequest;
    this.#log = log;
  }

  // open returns at once.
  open() {
    this.#run().catch((err) => this.#become("broken", err.stack));
    return this;
  }

  async close() {
    this.#closing.abort();
    await this.#nc?.close(); // what is not answered yet is asked again
    this.#become("closed");
  }

  async #run() {
    const { signal } = this.#closing;
    while (!signal.aborted) {
      try {
        this.#nc = await connect(this.#options());
        if (signal.aborted) return await this.#nc.close();
        await this.#serve(this.#nc);
      } catch (err) {
        if (!signal.aborted) this.#become("away", err.message);
      }
      await sleep(this.#backoff(), undefined, { signal }).catch(() => {});
    }
  }

  // serve returns when the connection is closed for good.
  async #serve(nc) {
    await this.#mustBeAlone(nc);
    const hosts = Object.keys(this.#config.towns).map((townId) => hostsSubject(this.#config.world, townId));
    for (const subject of [...hosts, allHostsSubject(this.#config.world)]) {
      nc.subscribe(subject, {
        callback: (err, msg) => err || msg.headers?.get("Asker") === this.#asker ||
          msg.respond(JSON.stringify({ name: NAME })),
      });
    }
    await nc.flush();
    await this.#mustBeAlone(nc); // of two that start at the same moment, at least one finds the other now
    for (const townId of Object.keys(this.#config.towns)) {
      const subject = applySubject(this.#config.world, townId);
      nc.subscribe(subject, {
        callback: (err, msg) => (err ? this.#become("refused", `${subject}: ${err.message}`) : this.#take(msg)),
      });
    }
    await nc.flush();
    this.#connected();
    for await (const status of nc.status()) {
      if (status.type === "disconnect") this.#become("away", "the connection was lost");
      if (status.type !== "reconnect") continue;
      await this.#mustBeAlone(nc); // another may have come meanwhile; until this one knows, it takes no command
      this.#connected();
    }
    const err = await nc.closed();
    if (err) throw err;
  }

  // mustBeAlone throws where another plugin hosts a town of this one: both would build. The connection is
  // tried again then, until the other is gone. A user who may not ask serves without an answer.
  async #mustBeAlone(nc) {
    const asker = headers();
    asker.set("Asker", this.#asker);
    const towns = Object.keys(this.#config.towns);
    const answers = await Promise.all(towns.map((townId) =>
      nc.request(hostsSubject(this.#config.world, townId), "", { timeout: HOST_WAIT_MS, headers: asker }).catch(() => null)));
    const hosted = towns.find((_, i) => answers[i]);
    if (hosted === undefined) return;
    await nc.close();
    throw new Error(`another plugin hosts the town ${hosted}: end one of the two`);
  }

  #take(msg) {
    if (!msg.reply || this.state !== "connected") return; // the engine asks again
    this.#onRequest(msg.string(), (answer) => {
      try {
        msg.respond(JSON.stringify(answer));
      } catch {
        // The connection is gone: the engine asks again.
      }
    });
  }

  #options() {
    const { url, env } = this.#config.nats;
    return {
      name: NAME, servers: url.split(","), maxReconnectAttempts: -1,
      ignoreAuthErrorAbort: true, reconnectDelayHandler: () => this.#backoff(), pingInterval: 20_000,
      ...(env.NATS_USER && {
        user: env.NATS_USER, pass: env.NATS_PASSWORD,
        inboxPrefix: env.NATS_INBOX_PREFIX ?? `_INBOX_${env.NATS_USER}`,
      }),
      ...(env.NATS_TOKEN && { token: env.NATS_TOKEN }),
      ...(env.NATS_CREDS && { authenticator: credsAuthenticator(readFileSync(env.NATS_CREDS)) }),
      ...((env.NATS_CA || env.NATS_CERT) && {
        tls: { caFile: env.NATS_CA, certFile: env.NATS_CERT, keyFile: env.NATS_KEY },
      }),
    };
  }

  // backoff doubles, and spreads so that many plugins don't come back at the same moment.
  #backoff() {
    const wait = Math.min(FIRST_WAIT_MS * 2 ** Math.min(this.#attempts++, 10), LONGEST_WAIT_MS);
    return wait * (0.8 + 0.4 * Math.random());
  }

  #connected() {
    this.#attempts = 0;
    this.#become("connected");
  }

  #become(state, why) {
    if (state === this.state) return;
    this.state = state;
    this.#log(`NATS: ${state}${why ? `: ${why}` : ""}`);
  }
}
