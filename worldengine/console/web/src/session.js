import { wsconnect } from "@nats-io/nats-core";
import { Client } from "../../../client/js/client.mjs";
import { pages } from "../../../client/js/follow.mjs";
import { feed } from "./feed.js";
import { forget } from "./kept.js";
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
const sampled = 2000;

/**
 * Where the page stands. phase is "starting", "signin" (with why), "away" (with why; it goes on trying) or
 * "ready". Then link is "live", "reconnecting" or "stale", since a time, and epoch counts the connections.
 */
export const session = createStore({ phase: "starting", why: "", link: "live", since: Date.now(), epoch: 0 });

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
  const client = new Client(nc, { world: session.get().config.world, timeout: patience });
  watch(client, login);
  try {
    const { cursor } = await client.request("event.list"); // what the pages ask for is not older
    const me = await client.request("whoami");
    session.set({ phase: "ready", client, me: { user, ...me }, link: "live", since: Date.now(), epoch: 1, deaf: "" });
    follow(client, cursor);
    listenLive(client);
  } catch (error) {
    await nc.close();
    await refused(error, login);
    return;
  }
  keep(client, login);
}

/** Keeps the user signed in over reloads, where the server has sessions. */
function keep(client, login) {
  const { config } = session.get();
  if (login.pass && config.sessions) save(config.world, login, () => session.get().client === client);
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
  const { client } = session.get();
  forget();
  unsave(session.get().config.world);
  session.set({ phase: "signin", why: "", client: null, me: null });
  await client?.nc.close();
}

/** Keeps the chip true to the connection. */
function watch(client, login) {
  let stale;
  client.onClosed((error) => {
    clearTimeout(stale);
    if (session.get().client !== client) return;
    forget();
    const why = `The connection was ended${error ? `: ${error.message}` : ""}.`;
    session.set({ client: null });
    if (!session.get().config.signIn) return later(login, `${why} Trying again…`);
    unsave(session.get().config.world);
    session.set({ phase: "signin", why: `${why} The rights of the user may have changed.` });
  });
  client.onDisconnect(() => {
    if (session.get().link !== "live") return; // a try to come back has failed
    session.set({ link: "reconnecting", since: Date.now() });
    stale = setTimeout(() => session.set({ link: "stale" }), soon);
  });
  client.onReconnect(() => {
    clearTimeout(stale);
    session.set({ link: "live", since: Date.now(), epoch: session.get().epoch + 1 });
    rightsAgain(client, login.user);
    keep(client, login); // it may be another server
  });
}

/** Asks whether the user has other rights since the connection was lost, as after a change of the access file. */
async function rightsAgain(client, user) {
  if (session.get().client !== client) return;
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
  for (let after = cursor, lost = false, full = 0; ;) {
    const { townId, signal } = await feed.wanted();
    if (client.nc.isClosed()) return;
    try {
      for await (const page of pages(client, { after, townId, limit: most, signal })) {
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
      if (client.nc.isClosed()) return;
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

/** Asks a verb. */
export const ask = (verb, body, options) => session.get().client.request(verb, body, options);
