import { statusAfter } from "../../../../../client/js/contract.gen.mjs";

/** Returns the row of a list for a run, as run.list shows it. */
export function rowOf(run) {
  const { started = {}, appendedBy } = run.metadata ?? {};
  return {
    runId: run.runId, seq: run.lastEventSeq, status: run.status, by: appendedBy,
    townId: run.townId, actorId: run.actorId, type: run.type, command: run.command,
    about: !appendedBy && started.signal && started.runId,
    result: run.resultStatus, reason: run.reasonCode,
    startedAt: run.startedAt, arrivedAt: run.arrivedAt, took: run.tookMs,
  };
}

/** The statuses of results. */
export const resultStatuses = ["executed", "failed", "rejected", "stale", "duplicate"];

/** The reason of runs that may be tried again: no game could be reached. */
export const mayRetry = "PLUGIN_UNAVAILABLE";

/** The reasons of runs in doubt: they failed, and the game may have applied their command all the same. */
export const inDoubt = ["PLUGIN_TIMEOUT", "PLUGIN_STATE_INVALID", "RCON_IN_DOUBT"];

export const ended = (row) => ["COMPLETED", "FAILED", "CANCELLED"].includes(row.status);

/** Returns a row after an event of its run; the same row where it has the event already. */
export function rowAfter(row, event) {
  if (row && event.runSeq <= row.seq) return row;
  const { payload: said = {}, appendedBy: by } = event; // a producer's run is no handoff, whatever its events claim
  const next = { ...(row ?? { runId: event.runId, startedAt: event.persistedAt }), seq: event.runSeq };
  next.arrivedAt ??= event.emittedAt;
  next.status = statusAfter[event.eventType] ?? next.status;
  if (event.eventType === "RunQueued" || event.eventType === "RunStarted") {
    Object.assign(next, {
      townId: said.townId ?? next.townId, actorId: said.actorId ?? next.actorId, command: said.command ?? next.command, by,
    });
    if (!by) Object.assign(next, { type: said.type ?? said.signal ?? next.type, about: said.signal ? said.runId : next.about });
    if (event.eventType === "RunStarted" || !next.startedAt) next.startedAt = event.persistedAt;
  } else if (!by && (event.eventType === "RunCompleted" || event.eventType === "RunFailed")) {
    Object.assign(next, { result: said.status ?? next.result, reason: said.reasonCode ?? next.reason });
  }
  if (ended(next)) next.took ??= Math.max(0, new Date(event.persistedAt) - new Date(next.arrivedAt));
  return next;
}

/** Reports whether a row passes the filters of a list. */
export function passes(row, filter) {
  return (!filter.townId || row.townId === filter.townId) &&
    (!filter.actorId || row.actorId === filter.actorId) &&
    (!filter.type || row.type === filter.type) &&
    (!filter.reasonCode || row.reason === filter.reasonCode) &&
    (!filter.status || row.status === filter.status || row.result === filter.status) &&
    (!filter.from || !row.startedAt || row.startedAt >= filter.from) &&
    (!filter.to || !row.startedAt || row.startedAt < filter.to);
}
