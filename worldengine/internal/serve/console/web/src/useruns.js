import { useEffect, useRef, useState } from "preact/hooks";
import { eventsOf, feed } from "./feed.js";
import { useEntry } from "./kept.js";
import { useSoon } from "./load.js";
import { RunList, mostRows, pageSize } from "./runlist.js";
import { ask, session } from "./session.js";
import { useStore } from "./store.js";

const scrolled = () => scrollY > 150;

/**
 * The runs that pass a filter, the newest first, live. It listens first and asks then. While the reader is
 * further down, or has the mouse over the rows, new runs wait and are counted.
 */
export function useRuns(filter, limit = mostRows) {
  const { epoch } = useStore(session);
  const key = JSON.stringify(filter);
  const values = useEntry();
  const kept = useRef(values.get("runs")); // of a page that is gone back to
  const list = useRef(kept.current?.key === key ? kept.current.list : null);
  const held = useRef(false); // under the mouse
  const stays = () => held.current || scrolled() && limit > pageSize;
  const viewOf = (l) => {
    const { shown, newer, lost, next, cut, searched, searchedTo, loading, error } = l;
    const more = next > 0 || cut > 0 || shown.length > limit;
    return { rows: shown.slice(0, limit), more, newer, lost, next, cut, searched, searchedTo, loading, error, held: held.current };
  };
  const [view, setView] = useState(() => viewOf(list.current ?? new RunList(filter, ask)));

  const release = (l) => { if (l.release()) l.load().then(show); };
  const show = useSoon(() => {
    const l = list.current;
    if (!l) return;
    if (!stays()) release(l);
    setView(viewOf(l));
  }, 100);

  useEffect(() => {
    const l = kept.current?.key === key ? kept.current.list : new RunList(filter, ask, limit);
    kept.current = null;
    list.current = l;
    values.set("runs", { key, list: l });
    const load = () => l.load(held.current || scrolled()).then(show);
    const off = feed.listen((commits, lost) => {
      for (const event of eventsOf(commits)) l.take(event);
      if (lost && !(l.lost && (held.current || scrolled()))) load();
      show();
    }, filter.townId);
    load();
    const onScroll = () => { if (!scrolled() && l.newer > 0) show(); };
    addEventListener("scroll", onScroll, { passive: true });
    show();
    return () => { off(); removeEventListener("scroll", onScroll); };
  }, [key, epoch]);

  return {
    ...view,
    older: () => list.current?.loadOlder().then(show),
    hold: (on) => { held.current = on; show(); },
    release: () => { scrollTo({ top: 0 }); if (list.current) release(list.current); show(); },
    retry: () => list.current?.load().then(show),
  };
}
