import { turn } from "./kept.js";
import { createStore } from "./store.js";

/** The pages of a world: the first part of the path, the name, and the verb that the user has to have the right to. */
export const areas = [
  ["", "Overview"], ["towns", "Towns"], ["runs", "Runs"], ["send", "Send", "handoff"], ["approvals", "Approvals", "approval.list"],
  ["alerts", "Alerts", "alert.list"], ["clients", "Clients", "world.clients"],
];

const decode = (part) => {
  try {
    return decodeURIComponent(part);
  } catch {
    return part; // typed by hand
  }
};

/**
 * A route is what is behind the "#" of the address: the world, the path and the query of #/=world/towns/x?q=y. If a
 * server has one world, addresses do without it. No town or page begins with "=" there.
 */
export function parse(hash) {
  const [text, query = ""] = hash.replace(/^#\/?/, "").split("?");
  const parts = text.split("/").filter(Boolean);
  const world = parts[0]?.startsWith("=") ? decode(parts.shift().slice(1)) : undefined;
  return { world, path: parts.map(decode), query: new URLSearchParams(query) };
}

export const route = createStore(parse(location.hash));
addEventListener("hashchange", () => {
  turn();
  route.set(parse(location.hash));
});

/** Returns the address of a page of the world that is shown; members of the query that are empty are left out. */
export function href(path, query = {}, world = route.get().world) {
  const search = new URLSearchParams();
  for (const [name, value] of Object.entries(query)) if (value) search.set(name, value);
  const text = search.toString();
  const parts = path.map((part) => encodeURIComponent(part));
  if (world) parts.unshift(`=${encodeURIComponent(world)}`);
  return `#/${parts.join("/")}${text && `?${text}`}`;
}

export const go = (path, query) => { location.hash = href(path, query); };

/** Shows a page in place of this one: it is no page of its own to go back to. */
export function replace(path, query, world) {
  const hash = href(path, query, world);
  history.replaceState(history.state, "", hash);
  route.set(parse(hash));
}

/** Changes the query of this page, as a filter does. */
export function setQuery(change) {
  const { path, query } = route.get();
  replace(path, { ...Object.fromEntries(query), ...change });
}
