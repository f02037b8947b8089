import { turn } from "./kept.js";
import { createStore } from "./store.js";

const decode = (part) => {
  try {
    return decodeURIComponent(part);
  } catch {
    return part; // typed by hand
  }
};

/** A route is the path and the query behind the "#" of the address: #/towns/x?q=y. */
function parse(hash) {
  const [path, query = ""] = hash.replace(/^#\/?/, "").split("?");
  return { path: path.split("/").filter(Boolean).map(decode), query: new URLSearchParams(query) };
}

export const route = createStore(parse(location.hash));
addEventListener("hashchange", () => {
  turn();
  route.set(parse(location.hash));
});

/** Returns the address of a page; members of the query that are empty are left out. */
export function href(path, query = {}) {
  const search = new URLSearchParams();
  for (const [name, value] of Object.entries(query)) if (value) search.set(name, value);
  const text = search.toString();
  return `#/${path.map((part) => encodeURIComponent(part)).join("/")}${text && `?${text}`}`;
}

export const go = (path, query) => { location.hash = href(path, query); };

/** Shows a page in place of this one: it is no page of its own to go back to. */
export function replace(path, query) {
  const hash = href(path, query);
  history.replaceState(history.state, "", hash);
  route.set(parse(hash));
}

/** Changes the query of this page, as a filter does. */
export function setQuery(change) {
  const { path, query } = route.get();
  replace(path, { ...Object.fromEntries(query), ...change });
}
