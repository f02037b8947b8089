// What the tests share: a real server, and a world of which a test answers the requests itself.
import { execFileSync, spawn } from "node:child_process";
import { mkdtempSync, rmSync, writeFileSync } from "node:fs";
import { createConnection, createServer } from "node:net";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { headers } from "@nats-io/nats-core";
import { connect } from "../index.mjs";
import { linesOf } from "../lines.mjs";

const root = new URL("../../../../", import.meta.url).pathname;

/** Returns the server's program: $HANDOFFD, or else it is built. @param {string} dir */
function program(dir) {
  if (process.env.HANDOFFD) return process.env.HANDOFFD;
  execFileSync("go", ["build", "-o", join(dir, "handoffd"), "./cmd/handoffd"], { cwd: root, stdio: "inherit" });
  return join(dir, "handoffd");
}

/**
 * Returns an address that a server can have now and again after each restart: its port is below those that the
 * kernel gives to every process that connects.
 */
async function freeAddress() {
  for (let i = 0; i < 100; i++) {
    const port = 12_000 + Math.floor(Math.random() * 18_000), server = createServer();
    const free = await new Promise((resolve) => {
      server.once("error", () => resolve(false)).listen(port, "127.0.0.1", () => resolve(true));
    });
    if (!free) continue;
    await new Promise((resolve) => { server.close(resolve); });
    return `127.0.0.1:${port}`;
  }
  throw new Error("no port is free");
}

/**
 * Starts a server with the towns of the examples. `stop` ends it with a signal and `start` starts it
 * again on its port; `signal` sends it a signal.
 * @param {{ after: (f: () => Promise<void>) => void }} t
 * @param {...string} flags
 */
export async function serve(t, ...flags) {
  const dir = mkdtempSync(join(tmpdir(), "worldengine-client-"));
  const handoffd = program(dir);
  const world = { url: await freeAddress(), data: join(dir, "data"), start, stop, signal };
  /** @type {import("node:child_process").ChildProcess} */
  let child;
  async function start() {
    child = spawn(handoffd, ["--listen", world.url.replace("nats://", ""), "--data", world.data,
      "--world-file", join(root, "testdata/worlds/frontier.json"), "--http", "off", "--log-level", "ERROR", ...flags],
    { stdio: ["ignore", "pipe", "inherit"] });
    const out = /** @type {import("node:stream").Readable} */ (child.stdout).setEncoding("utf8");
    for await (const line of linesOf(out.iterator({ destroyOnReturn: false }))) {
      if (!line.startsWith("ready ")) continue;
      world.url = line.slice("ready ".length);
      return;
    }
    throw new Error("handoffd is not ready");
  }
  /** @param {NodeJS.Signals} name */
  function signal(name) { child.kill(name); }
  /** @param {NodeJS.Signals} signal */
  async function stop(signal = "SIGTERM") {
    if (child.exitCode !== null || child.signalCode !== null) return;
    const ended = new Promise((resolve) => child.once("exit", resolve));
    child.kill(signal);
    await ended;
  }
  t.after(async () => {
    await stop();
    rmSync(dir, { recursive: true, force: true });
  });
  await start();
  return world;
}

/** The password of the users of an access file. */
export const password = "a password of all users";

/**
 * Makes an access file, which `admit` writes: its users are agents unless they say otherwise.
 * @param {{ after: (f: () => Promise<void>) => void }} t
 */
export function access(t) {
  const dir = mkdtempSync(join(tmpdir(), "worldengine-access-"));
  t.after(async () => rmSync(dir, { recursive: true, force: true }));
  writeFileSync(join(dir, "password"), password);
  const file = join(dir, "access.json");
  /** @param {...(string | { name: string, role: string, towns?: string[], read?: string[] })} users */
  const admit = (...users) => writeFileSync(file, JSON.stringify({
    users: users.map((user) => ({
      passwordFile: "password", ...(typeof user === "string" ? { name: user, role: "agent" } : user),
    })),
  }));
  return { file, admit };
}

/**
 * Connects to a server, until the test ends.
 * @param {{ after: (f: () => Promise<void>) => void }} t
 * @param {string} url
 * @param {Parameters<typeof connect>[0]} [options]
 */
export async function joined(t, url, options) {
  const engine = await connect({ servers: url, reconnectTimeWait: 50, ...options });
  t.after(() => engine.nc.close());
  return engine;
}

/**
 * Starts a link to a server that can be cut and restored: its connections end, and no new one is taken. After
 * hush its connections pass nothing any more, and do not end; new connections pass everything.
 * @param {{ after: (f: () => Promise<void>) => void }} t
 * @param {string} url
 */
export async function link(t, url) {
  const { hostname, port } = new URL(url);
  /** @type {Set<import("node:net").Socket>} */
  const sockets = new Set();
  let isCut = false;
  const proxy = createServer((from) => {
    if (isCut) {
      from.destroy();
      return;
    }
    const to = createConnection(Number(port), hostname);
    for (const [a, b] of [[from, to], [to, from]]) {
      sockets.add(a);
      a.pipe(b);
      a.on("error", () => {}).on("close", () => { sockets.delete(a); b.destroy(); });
    }
  });
  /** @param {boolean} cut */
  const set = (cut) => {
    isCut = cut;
    for (const socket of sockets) socket.destroy();
  };
  const hush = () => { for (const socket of sockets) socket.unpipe().pause(); };
  t.after(async () => { set(true); proxy.close(); });
  await new Promise((resolve) => { proxy.listen(0, "127.0.0.1", () => resolve(null)); });
  return { url: `127.0.0.1:${/** @type {import("node:net").AddressInfo} */ (proxy.address()).port}`, set, hush };
}

/** @typedef {{ body?: unknown, error?: [status: number, code: string, retryAfterMs?: number], runId?: string }} Answer */

/**
 * Answers a verb of a world that no server has: the n-th request, from 1, with answer(n, body); null is no
 * answer. It returns the bodies of the requests.
 * @param {import("../index.mjs").Client} engine
 * @param {string} verb
 * @param {(n: number, body: any) => Answer | null | Promise<Answer | null>} answer
 */
export function fake(engine, verb, answer) {
  /** @type {any[]} */
  const asked = [];
  engine.nc.subscribe(`worldengine.v1.${engine.world}.${verb}`, {
    callback: (error, msg) => {
      if (error) throw error;
      const body = msg.json();
      Promise.resolve(answer(asked.push(body), body)).then((reply) => reply && respond(msg, reply));
    },
  });
  return asked;
}

/** @param {import("@nats-io/nats-core").Msg} msg @param {Answer} reply */
export function respond(msg, reply) {
  const h = headers();
  if (reply.runId) h.set("Run-Id", reply.runId);
  let { body } = reply;
  if (reply.error) {
    const [status, code, retryAfterMs] = reply.error;
    h.set("Nats-Service-Error-Code", String(status));
    h.set("Nats-Service-Error", code);
    if (retryAfterMs) h.set("Retry-After-Ms", String(retryAfterMs));
    body = { error: { code, message: code, details: [] } };
  }
  msg.respond(JSON.stringify(body), { headers: h });
}

/** Collects what an iterator yields. @template T @param {AsyncIterable<T>} iterator @param {number} [count] */
export async function collect(iterator, count = Infinity) {
  /** @type {T[]} */
  const all = [];
  for await (const item of iterator) if (all.push(item) >= count) break;
  return all;
}
