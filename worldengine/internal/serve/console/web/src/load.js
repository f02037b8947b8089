import { useCallback, useEffect, useRef, useState } from "preact/hooks";
import { useEntry } from "./kept.js";
import { session } from "./session.js";
import { useStore } from "./store.js";

/**
 * Loads what a page shows, again whenever deps change and after each reconnection. What was shown stays until
 * the answer is there, and an answer that comes after a newer question is not taken. A page that is gone back to begins
 * with what it has kept under a name.
 */
export function useLoad(load, deps, name) {
  const { epoch } = useStore(session);
  const values = useEntry();
  const [state, setState] = useState({ data: values.get(name) ?? null, error: null, loading: true });
  const asked = useRef(0);
  const reload = useCallback(async () => {
    const mine = ++asked.current;
    setState((s) => ({ ...s, loading: true }));
    try {
      const data = await load();
      if (mine !== asked.current) return;
      if (name) values.set(name, data);
      setState({ data, error: null, loading: false });
    } catch (error) {
      if (mine === asked.current) setState((s) => ({ ...s, error, loading: false }));
    }
  }, deps);
  useEffect(() => {
    reload();
    return () => { asked.current++; };
  }, [reload, epoch]);
  return { ...state, reload, setData: (data) => setState((s) => ({ ...s, data })) };
}

/** Returns a function that runs work at most once within ms, the last time after it was called. */
export function useSoon(work, ms = 300) {
  const latest = useRef(work);
  latest.current = work;
  const timer = useRef(null);
  useEffect(() => () => clearTimeout(timer.current), []);
  return useCallback(() => {
    timer.current ??= setTimeout(() => { timer.current = null; latest.current(); }, ms);
  }, [ms]);
}

/** Calls work by time while the page is looked at, and connected. */
export function useOften(work, ms) {
  useEffect(() => {
    const timer = setInterval(() => { if (!document.hidden && session.get().link === "live") work(); }, ms);
    return () => clearInterval(timer);
  }, [work, ms]);
}

/** Runs work(item) for each item, a few at a time. */
export async function eachOf(items, work, atOnce = 4) {
  const waiting = [...items];
  await Promise.all(Array.from({ length: atOnce }, async () => {
    while (waiting.length > 0) await work(waiting.shift());
  }));
}
