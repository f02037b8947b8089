import { statusAfter } from "../../../client/js/contract.gen.mjs";

/** Returns the row of a list for a run, as run.get and run.list show it. */
export function rowOf(run) {
  const { started = {}, outcome = {} } = run.metadata ?? {};
  return {
    runId: run.runId, seq: run.lastEventSeq, status: run.status,
    townId: run.townId ?? started.townId, actorId: run.actorId ?? started.actorId,
    type: run.type ?? started.type ?? started.signal, command: run.command ?? started.command,
    about: started.signal && started.runId,
    result: run.resultStatus ?? outcome.status, reason: run.reasonCode ?? outcome.reasonCode,
    startedAt: run.startedAt, completedAt: run.completedAt,
  };
}

/** Returns the town of an event by its subject; undefined where that has a hash, or no town. */
export function townOf({ town }) {
  if (!town || town.startsWith("=")) return undefined;
  try {
    return decodeURIComponent(town);
  } catch {
    return undefined; // ids of broken UTF-16 have such tokens
  }
}

export const ended = (row) => ["COMPLETED", "FAILED", "CANCELLED"].includes(row.status);

/** Returns a row after an event of its run; the same row where it has the event already. */
export function rowAfter(row, event) {
  if (row && event.runSeq <= row.seq) return row;
  const said = event.payload ?? {};
  const next = { ...(row ?? { runId: event.runId, startedAt: event.persistedAt }), seq: event.runSeq };
  next.status = statusAfter[event.eventType] ?? next.status;
  if (event.eventType === "RunQueued" || event.eventType === "RunStarted") {
    Object.assign(next, {
      townId: said.townId ?? next.townId, actorId: said.actorId ?? next.actorId,
      type: said.type ?? said.signal ?? next.type, command: said.command ?? next.command,
      about: said.signal ? said.runId : next.about,
    });
    if (event.eventType === "RunStarted" || !next.startedAt) next.startedAt = event.persistedAt;
  } else if (event.eventType === "RunCompleted" || event.eventType === "RunFailed") {
    Object.assign(next, { result: said.status ?? next.result, reason: said.reasonCode ?? next.reason });
  }
  if (ended(next)) next.completedAt = event.persistedAt;
  return next;
}

/** Reports whether a row passes the filters of a list. */
export function passes(row, filter) {
  return (!filter.townId || row.townId === filter.townId) &&
    (!filter.actorId || row.actorId === filter.actorId) &&
    (!filter.type || row.type === filter.type) &&
    (!filter.status || row.status === filter.status || row.result === filter.status) &&
    (!filter.from || !row.startedAt || row.startedAt >= filter.from);
}
