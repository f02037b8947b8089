const value = (v) => (v === undefined || v === null || v === "" ? "(none given)" : v);
const there = (list, id) => (id && list.some((item) => item.id === id) ? "exists" : "missing");
const equal = (what, expected, actual) => [what, expected, actual, expected === actual];

/** What each kind is about, what it expects of a town, what the town has, and, where the page can know it, whether that will do. */
const kinds = {
  mission_absent: (p, town) => equal("mission", "none", town.mission?.id ?? "none"),
  mission_active: (p, town) => ["mission", p.targetId || "any", town.mission?.id ?? "none", town.mission && (!p.targetId || town.mission.id === p.targetId)],
  side_quest_exists: (p, town) => equal(`side quest ${value(p.targetId)}`, "exists", there(town.sideQuests, p.targetId)),
  project_exists: (p, town) => equal(`project ${value(p.targetId)}`, "exists", there(town.projects, p.targetId)),
  project_status: (p, town) => equal(
    `status of project ${value(p.targetId)}`, value(p.expected), town.projects.find((project) => project.id === p.targetId)?.status ?? "missing",
  ),
  pressure_at_least: (p, town) => bound(p, "at least", town.pressure, (actual) => actual >= p.expected),
  pressure_at_most: (p, town) => bound(p, "at most", town.pressure, (actual) => actual <= p.expected),
  salvage_focus_supported: (p) => [`salvage focus ${value(p.expected)}`, "known"],
  talk_type_supported: (p) => [`talk type ${value(p.expected)}`, "known"],
  town_exists: (p, town) => equal("town", p.targetId || town.townId, town.townId),
};

function bound({ field, expected }, word, pressure, will) {
  const actual = Object.hasOwn(pressure, field ?? "") ? pressure[field] : undefined;
  return [value(field), `${word} ${value(expected)}`, actual ?? "unknown", actual !== undefined && typeof expected === "number" && will(actual)];
}

/** Returns lists by kind, each from its last to its first: what has been looked at is popped. */
function byKind(list) {
  const kinds = new Map();
  for (const item of [...list].reverse()) {
    if (!kinds.has(item.kind)) kinds.set(item.kind, []);
    kinds.get(item.kind).push(item);
  }
  return kinds;
}

/** Returns the preconditions of a handoff in the order in which the server evaluates them. */
export function toJudge({ executionRequirements, proposal }) {
  const key = (p) => JSON.stringify([p.kind, p.targetId, p.field, p.expected]);
  const required = executionRequirements?.preconditions ?? [], keys = new Set(required.map(key));
  return [...required, ...(proposal?.preconditions ?? []).filter((p) => !keys.has(key(p)) && keys.add(key(p)))];
}

/**
 * Returns the preconditions of a handoff as {kind, what, expected, actual, holds}: what each expects, and what the
 * town had when it was judged. failures are those that the server found, in the order of the preconditions; it is
 * they that decide what holds.
 */
export function compared(preconditions, town, failures) {
  const failed = byKind(failures), left = byKind(preconditions);
  return preconditions.map((p) => {
    const [unmet, same] = [failed.get(p.kind) ?? [], left.get(p.kind)];
    const [what, expected, actual, will] = kinds[p.kind]?.(p, town) ?? [value(p.targetId), value(p.expected), "not known here"];
    const holds = unmet.length === 0 || (unmet.length < same.length && (will ?? !unmet.at(-1).detail.endsWith(`: ${value(p.expected)}`)));
    if (!holds) unmet.pop();
    same.pop();
    return { kind: p.kind, what, expected: String(expected), actual: String(actual ?? (holds ? "known" : "unknown")), holds };
  });
}

/** Returns the failures that are of none of the preconditions, such as a missing approval. */
export function beside(preconditions, failures) {
  const kinds = new Set(preconditions.map((p) => p.kind));
  return failures.filter((f) => !kinds.has(f.kind));
}
