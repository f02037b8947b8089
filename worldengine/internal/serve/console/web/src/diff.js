/** Numbers of a snapshot have up to four decimals that mean something. */
const number = (n) => (typeof n === "number" ? String(Math.round(n * 1e4) / 1e4) : String(n));
const fixed = (n) => (typeof n === "number" ? n.toFixed(2) : String(n));

/**
 * Returns what the difference between two snapshots of a town means, as {what, before, after}; a member that
 * was not there is undefined.
 */
export function difference(a, b) {
  const out = [];
  const add = (what, before, after) => { if (before !== after) out.push({ what, before, after }); };
  add("day", number(a.day), number(b.day));
  for (const name of ["threat", "scarcity", "hope", "dread"]) {
    add(name, fixed(a.pressure?.[name]), fixed(b.pressure?.[name]));
  }
  add("mission", a.mission?.title ?? a.mission?.id, b.mission?.title ?? b.mission?.id);
  items(a.projects, b.projects, (id, before, after) => {
    if (!before || !after) {
      add(`project ${id}`, before && `${before.name} ${fixed(before.progress)}`, after && `${after.name} ${fixed(after.progress)}`);
      return;
    }
    add(id, fixed(before.progress), fixed(after.progress));
    add(`${id} status`, before.status, after.status);
    add(`${id} name`, before.name, after.name);
  });
  items(a.sideQuests, b.sideQuests, (id, before, after) => {
    add(`side quest ${id}`, before && (before.title || id), after && (after.title || id));
  });
  add("nether event", a.latestNetherEvent ?? undefined, b.latestNetherEvent ?? undefined);
  return out;
}

/** Calls each(id, before, after) for the items of two lists, in the order of their ids. */
function items(a, b, each) {
  const before = new Map((a ?? []).map((item) => [item.id, item]));
  const after = new Map((b ?? []).map((item) => [item.id, item]));
  for (const id of [...new Set([...before.keys(), ...after.keys()])].sort()) each(id, before.get(id), after.get(id));
}
