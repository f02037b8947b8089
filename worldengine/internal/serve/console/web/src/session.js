import { wsconnect } from "@nats-io/nats-core";
import { Client } from "../../../../../client/js/client.mjs";
import { replyError } from "../../../../../client/js/exchange.mjs";
import { pages } from "../../../../../client/js/follow.mjs";
import { feed } from "./feed.js";
import { forget } from "./kept.js";
import { replace, route } from "./route.js";
import { save, saved, unsave } from "./saved.js";
import { createStore } from "./store.js";

/** How long a lost connection counts as about to come back. */
const soon = 15_000;
/** How long the page waits before it tries to connect again. */
const again = 3000;
/** How long a request of the page may take, with its repetitions. */
const patience = 10_000;
/** How many commits the page asks for at once, and how often while more come, in milliseconds. */
const most = 10;
const every = 500;
/** After so many full answers more happens than the page can follow. Then pages ask for what they show, so often. */
const burst = 4;
const sampled = 3000;

/**
 * Where the page stands. phase is "starting", "signin" (with why), "away" (with why; it goes on trying) or
 * "ready". Then link is "live", "reconnecting" or "stale", since a time, and epoch counts the connections. worlds are
 * those of the server, null unless there are several; then world is the one that is shown, client and me are there
 * while it answers, and missing says why it does not.
 */
export const session = createStore({ phase: "starting", why: "", link: "live", since: Date.now(), epoch: 0, worlds: null });

/** Starts with what the server says of itself. */
export async function start() {
  try {
    const answer = await fetch("config.json");
    if (!answer.ok) throw new Error(await answer.text());
    const config = await answer.json();
    session.set({ config });
    const login = config.signIn ? saved(config.world) : {};
    if (login) await signIn(login);
    else session.set({ phase: "signin", why: "" });
  } catch (error) {
    session.set({ phase: "away", why: `The server cannot be reached (${error.message}).` });
    setTimeout(start, again);
  }
}

const natsURL = () => new URL("nats", location.href.split("#")[0]).href.replace(/^http/, "ws");

/** Connects as a user, whose password is kept in memory for as long as the page is open, or by a session's token. */
export async function signIn(login) {
  const { user, pass, token } = login;
  session.set({ phase: "starting", why: "" });
  let nc;
  try {
    nc = await wsconnect({
      servers: natsURL(), name: "console", maxReconnectAttempts: -1, reconnectTimeWait: 500,
      reconnectJitter: 500, pingInterval: 10_000, maxPingOut: 2, timeout: 8000, ignoreClusterUpdates: true,
      ...(user && { user, pass: pass ?? token, inboxPrefix: `_INBOX_${user}` }),
    });
  } catch (error) {
    await refused(error, login);
    return;
  }
  const conn = new Client(nc, { world: session.get().config.world, timeout: patience });
  watch(conn, login);
  session.set({ conn, worlds: null, link: "live", since: Date.now() });
  try {
    const worlds = await severalWorlds();
    session.set({ worlds });
    if (worlds) settleAddress();
    if (worlds) enterSoon(conn, login.user);
    else await enter(conn, login.user);
  } catch (error) {
    await nc.close();
    await refused(error, login);
    return;
  }
  keep(conn, login);
}

/** How many worlds a page of the list has. */
const worldsAtOnce = 200;
const mostWorlds = 1000;

/** Asks a verb of any world, once. */
export async function askOf(world, verb, body) {
  const msg = await session.get().conn.nc.request(`worldengine.v1.${world}.${verb}`, JSON.stringify(body), { timeout: patience / 2 });
  const error = replyError(msg);
  if (error) throw error;
  return msg.json();
}

/** Returns the worlds that the user may use. */
export async function listWorlds() {
  const all = [];
  for (let after; all.length < mostWorlds;) {
    const page = await askOf("=worlds", "list", { after, limit: worldsAtOnce });
    all.push(...page.worlds);
    after = page.next;
    if (!after) break;
  }
  return all;
}

/** Returns the worlds unless the server's first one is all that there is: a server of before has no list of them. */
async function severalWorlds() {
  const all = await listWorlds().catch(() => []);
  return all.some((w) => w.world !== session.get().config.world) ? all : null;
}

/** An address without a world is of the server's first one, but for the first page, which lists several worlds. */
function settleAddress() {
  const { world, path, query } = route.get();
  const { worlds, config } = session.get();
  if (world || path.length === 0 && worlds.length > 1) return;
  const first = worlds.some((w) => w.world === config.world) ? config.world : worlds[0].world;
  replace(path, Object.fromEntries(query), first);
}

/** Shows a world: what its user may do, and what happens in it from now on. */
async function enter(client, user) {
  const { cursor } = await client.request("event.list"); // what the pages ask for is not older
  const me = await client.request("whoami");
  if (session.get().conn?.nc !== client.nc || (session.get().worlds && route.get().world !== client.world)) return;
  session.set({ phase: "ready", client, world: client.world, me: { user, ...me }, missing: null, deaf: "", epoch: session.get().epoch + 1 });
  follow(client, cursor);
  listenLive(client);
}

/** Shows the world of the address, and tries again while it does not answer. Without a world it shows none. */
async function enterSoon(conn, user) {
  const { world } = route.get();
  session.set({ phase: "ready", client: null, me: null, world, missing: null });
  let client;
  while (world && session.get().conn === conn && route.get().world === world && !conn.nc.isClosed()) {
    try {
      client ??= new Client(conn.nc, { world, timeout: patience });
      return await enter(client, user);
    } catch (error) {
      session.set({ missing: error });
      await sleep(again);
    }
  }
  return undefined;
}

route.subscribe(({ world }) => {
  const { worlds, conn, phase, world: shown, login } = session.get();
  if (!worlds || phase !== "ready") return;
  settleAddress();
  if (world !== shown && world === route.get().world) enterSoon(conn, login?.user);
});

/** Keeps the user signed in over reloads, where the server has sessions. */
function keep(conn, login) {
  const { config } = session.get();
  session.set({ login: { user: login.user } });
  if (login.pass && config.sessions) save(config.world, login, () => session.get().conn === conn);
}

/** Says why there is no connection, and tries again where that can help. Only who has to sign in is asked to. */
async function refused(error, login) {
  const { config } = session.get();
  const said = `${error.name} ${error.message}`;
  const slow = /authentication timeout/i.test(said); // of the server, or of this page
  const denied = !slow && /authorization/i.test(said);
  if (config.signIn && denied) {
    unsave(config.world);
    session.set({
      phase: "signin",
      why: login.token ? "The session has ended: sign in again." : "The user or the password is not right, or there were too many tries.",
    });
    return;
  }
  let why = slow ? "The server is slow. Trying again…" : "The server takes no more connections of this address now. Trying again…";
  if (!slow && !denied) {
    why = `NATS cannot be reached: ${error.message}.`;
    try {
      const answer = await fetch("nats");
      if (answer.status === 503) why = await answer.text();
    } catch { /* the server is away, as said */ }
  }
  if (config.signIn && !slow && !login.token) session.set({ phase: "signin", why });
  else later(login, why);
}

/** Says why the page waits, and connects again in a while. */
function later(login, why) {
  session.set({ phase: "away", why });
  setTimeout(() => { if (session.get().phase === "away") signIn(login); }, again);
}

export async function signOut() {
  const { conn } = session.get();
  forget();
  unsave(session.get().config.world);
  session.set({ phase: "signin", why: "", client: null, me: null, conn: null });
  await conn?.nc.close();
}

/** Keeps the chip true to the connection. */
function watch(conn, login) {
  let stale;
  conn.onClosed((error) => {
    clearTimeout(stale);
    if (session.get().conn !== conn) return;
    forget();
    const why = `The connection was ended${error ? `: ${error.message}` : ""}.`;
    session.set({ client: null, conn: null });
    if (!session.get().config.signIn) return later(login, `${why} Trying again…`);
    unsave(session.get().config.world);
    session.set({ phase: "signin", why: `${why} The rights of the user may have changed.` });
  });
  conn.onDisconnect(() => {
    if (session.get().link !== "live") return; // a try to come back has failed
    session.set({ link: "reconnecting", since: Date.now() });
    stale = setTimeout(() => session.set({ link: "stale" }), soon);
  });
  conn.onReconnect(() => {
    clearTimeout(stale);
    session.set({ link: "live", since: Date.now(), epoch: session.get().epoch + 1 });
    rightsAgain(session.get().client, login.user);
    keep(conn, login); // it may be another server
  });
}

/** Asks whether the user has other rights since the connection was lost, as after a change of the access file. */
async function rightsAgain(client, user) {
  if (!client) return;
  const { me } = session.get();
  try {
    const now = { user, ...await client.request("whoami") };
    if (JSON.stringify(now) === JSON.stringify(me) || session.get().client !== client) return;
    session.set({ me: now });
    listenLive(client);
  } catch { /* the pages say what they may not do */ }
}

const sleep = (ms) => new Promise((resolve) => { setTimeout(resolve, ms); });

/**
 * Hands on the commits behind a cursor that the pages listen to, until the connection is closed. If more happens than the
 * page can follow it goes on from the end of the log, again and again.
 */
async function follow(client, cursor) {
  const over = () => client.nc.isClosed() || session.get().client !== client;
  for (let after = cursor, lost = false, full = 0; ;) {
    const { townId, signal } = await feed.wanted();
    if (over()) return;
    try {
      for await (const page of pages(client, { after, townId, limit: most, signal })) {
        if (over()) return;
        if (session.get().deaf) session.set({ deaf: "" });
        // An older log was restored: what pages show is of the one before.
        if (page.lost === "INVALID_CURSOR") session.set({ epoch: session.get().epoch + 1 });
        full = page.commits.length < most ? 0 : full + 1;
        const busy = full > burst;
        after = busy ? (await client.request("event.list")).cursor : page.cursor;
        feed.take(busy ? [] : page.commits, busy || lost || Boolean(page.lost));
        lost = false;
        if (page.commits.length > 0) await sleep(busy ? sampled : every);
        if (busy || signal.aborted) break;
      }
    } catch (error) {
      if (over()) return;
      session.set({ deaf: error.message });
      await sleep(3000);
      [after, lost] = [undefined, true];
    }
  }
}

let heard = [];

/** Hears the alerts and the commits of no town, if the user may hear them. */
function listenLive({ nc, world }) {
  for (const sub of heard) if (!sub.isClosed()) sub.unsubscribe();
  const hear = (subject, take) => nc.subscribe(subject, { callback: (error, msg) => !error && take(msg) });
  heard = [];
  if (can("alert.list")) heard.push(hear(`alerts.v1.${world}.>`, feed.alert));
  if (!session.get().me?.read && !session.get().me?.towns) heard.push(hear(`worldengine.v1.${world}.events.=world`, feed.world));
}

/** The verbs whose answers are about all towns, which a user who may read some of them does not get. */
const ofAllTowns = ["alert.list", "alert.ack", "world.clients"];

/** Reports whether the user may ask a verb. */
export function can(verb) {
  const { me } = session.get();
  return Boolean(me?.verbs.includes(verb) && !(me.read && ofAllTowns.includes(verb)));
}

/** The name in which the user decides and gives signals. */
export const actor = () => session.get().me.user ?? "console";

/** Asks a verb. */
export const ask = (verb, body, options) => session.get().client.request(verb, body, options);
