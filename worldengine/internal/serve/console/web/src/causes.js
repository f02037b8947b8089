/** How many towns, pauses or runs a line names. */
export const named = 3;

/** The sentences of world.status that a line with links says instead. */
const ofPlugins = /^(?:the town .+ has|\d+ towns have) (?:had )?no plugin/s;
const ofAlert = /^alert \d+, ([A-Z_]+) of /;

/**
 * Returns why a person should look at the world, one entry for each cause, the gravest first. grave entries are
 * those for which handoffctl status exits 1.
 */
export function causesOf(status) {
  const { problems = [], pluginsAbsent = [], townsPaused = [], townStates, alerts, approvals } = status ?? {};
  if (!townStates) return [];
  const { noPlugin, paused, inDoubt } = townStates;
  const open = (alerts?.newest ?? []).filter((a) => a.code !== "PLUGIN_ABSENT" || !noPlugin);
  const listed = new Set(open.map((a) => a.code));
  const urgent = new Set(problems.map((p) => ofAlert.exec(p)?.[1]).filter((code) => listed.has(code)));
  const said = (problem) => noPlugin > 0 && ofPlugins.test(problem) || urgent.has(ofAlert.exec(problem)?.[1]);
  const all = problems.filter((p) => !said(p)).map((text) => ({ kind: "problem", tone: "bad", grave: true, text }));
  if (noPlugin > 0) all.push(absence(pluginsAbsent, noPlugin));
  for (const alert of open) all.push({ kind: "alert", tone: severities[alert.severity] ?? "calm", grave: urgent.has(alert.code), alert });
  if (inDoubt > 0 && !listed.has("APPLY_IN_DOUBT")) all.push({ kind: "inDoubt", tone: "bad", count: inDoubt });
  if (paused > 0) all.push({ kind: "paused", tone: "wait", count: paused, pauses: townsPaused });
  if (approvals?.count > 0) all.push({ kind: "approvals", tone: "wait", count: approvals.count, since: approvals.since });
  return all.sort((a, b) => order.indexOf(a.tone) - order.indexOf(b.tone)); // it is stable
}

/** The tones of the severities of alerts. */
export const severities = { P1: "bad", P2: "wait", P3: "calm" };
const order = ["bad", "wait", "calm"];

/** The towns without their plugin, which may well have one cause. */
function absence(absent, count) {
  const since = absent.map((a) => a.since).sort()[0];
  return { kind: "noPlugin", tone: "bad", grave: true, count, since, absent };
}
