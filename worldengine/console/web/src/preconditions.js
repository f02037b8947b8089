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

/**
 * Returns the preconditions of a handoff as {kind, what, expected, actual, holds}: what each expects, and what the
 * town had when it was judged. failures are those that the server found, in the order of the preconditions; it is
 * they that decide what holds.
 */
export function compared(preconditions, town, failures) {
  const left = [...failures];
  return preconditions.map((p, i) => {
    const failed = left.filter((f) => f.kind === p.kind);
    const same = preconditions.slice(i).filter((other) => other.kind === p.kind).length;
    const [what, expected, actual, will] = kinds[p.kind]?.(p, town) ?? [value(p.targetId), value(p.expected), "not known here"];
    const holds = failed.length === 0 || (failed.length < same && (will ?? !failed[0].detail.endsWith(`: ${value(p.expected)}`)));
    if (!holds) left.splice(left.indexOf(failed[0]), 1);
    return { kind: p.kind, what, expected: String(expected), actual: String(actual ?? (holds ? "known" : "unknown")), holds };
  });
}

/** Returns the failures that are of none of the preconditions, such as a missing approval. */
export const beside = (preconditions, failures) => failures.filter((f) => !preconditions.some((p) => p.kind === f.kind));
