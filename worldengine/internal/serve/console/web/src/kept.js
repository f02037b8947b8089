import { useState } from "preact/hooks";

/** How long a page that is gone back to may take until it is as long as it was, in milliseconds. */
const patience = 2000;

/** The entries of the browser's history: what each keeps of its page, where that was scrolled to, and its focus. */
let entries = new Map();
let current;
let last = 0;

history.scrollRestoration = "manual";
enter();

/** Makes the browser's entry the current one. */
function enter() {
  let key = history.state?.key;
  if (!key) {
    key = `${performance.timeOrigin}.${++last}`;
    history.replaceState({ key }, "");
  }
  current = entries.get(key) ?? { key, values: new Map() };
  entries.set(key, current);
}

/** Notes where the page is that is left, and enters the one that the browser has gone to. */
export function turn() {
  Object.assign(current, { left: true, scroll: scrollY, focus: document.activeElement?.getAttribute("href") });
  enter();
}

/** Forgets what pages have shown, as to another user. */
export function forget() {
  entries = new Map();
  history.replaceState(null, "");
  enter();
}

/** The key of the current entry. */
export const entryKey = () => current.key;

/** The values that the entry of a page keeps, by name. */
export function useEntry() { return useState(() => current.values)[0]; }

/** useState that a page which is gone back to begins with. */
export function useKept(name, initial) {
  const values = useEntry();
  const [value, set] = useState(values.get(name) ?? initial);
  return [value, (next) => { values.set(name, next); set(next); }];
}

/** Shows the current page as it was left: its scroll and its focus. It returns false for a page that is new. */
export function restore() {
  const entry = current, until = performance.now() + patience;
  if (!entry.left) return false;
  const step = () => {
    if (entry !== current) return;
    const row = entry.focus && document.querySelector(`main a[href="${CSS.escape(entry.focus)}"]`);
    const long = document.documentElement.scrollHeight - innerHeight >= entry.scroll;
    if ((!long || (entry.focus && !row)) && performance.now() < until) {
      requestAnimationFrame(step);
      return;
    }
    row?.focus({ preventScroll: true });
    scrollTo({ top: entry.scroll });
  };
  step();
  return true;
}
