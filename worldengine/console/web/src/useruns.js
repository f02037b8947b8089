import { useEffect, useRef, useState } from "preact/hooks";
import { eventsOf, feed } from "./feed.js";
import { useSoon } from "./load.js";
import { RunList, mostRows, pageSize } from "./runlist.js";
import { ask, session } from "./session.js";
import { useStore } from "./store.js";

const scrolled = () => scrollY > 150;

/**
 * The runs that pass a filter, the newest first, live. It listens first and asks then. While the reader is
 * further down, new runs wait and are counted.
 */
export function useRuns(filter, limit = mostRows) {
  const { epoch } = useStore(session);
  const [view, setView] = useState({ rows: [], more: false, newer: 0, next: 0, cut: 0, loading: true, error: null });
  const list = useRef(null);
  const key = JSON.stringify(filter);

  const release = (l) => { if (l.release()) l.load().then(show); };
  const show = useSoon(() => {
    const l = list.current;
    if (!l) return;
    if (!scrolled() || limit <= pageSize) release(l);
    const { shown, newer, lost, next, cut, loading, error } = l;
    const more = next > 0 || cut > 0 || shown.length > limit;
    setView({ rows: shown.slice(0, limit), more, newer, lost, next, cut, loading, error });
  }, 100);

  useEffect(() => {
    const l = new RunList(filter, ask, limit);
    list.current = l;
    const off = feed.listen((commits, lost) => {
      for (const event of eventsOf(commits)) l.take(event);
      if (lost && scrolled()) l.lose();
      else if (lost) l.load().then(show);
      show();
    }, filter.townId);
    l.load().then(show);
    const onScroll = () => { if (!scrolled() && l.newer > 0) show(); };
    addEventListener("scroll", onScroll, { passive: true });
    show();
    return () => { off(); removeEventListener("scroll", onScroll); };
  }, [key, epoch]);

  return {
    ...view,
    older: () => list.current?.loadOlder().then(show),
    release: () => { scrollTo({ top: 0 }); if (list.current) release(list.current); show(); },
    retry: () => list.current?.load().then(show),
  };
}
