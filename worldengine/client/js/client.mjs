import { headers as newHeaders } from "@nats-io/nats-core";
import { followChanges } from "./changes.mjs";
import { checkedWorld, json, milliseconds, verified } from "./checks.mjs";
import { changing } from "./contract.gen.mjs";
import { dryRun, send } from "#handoffs"; // a name, so that the console's bundle can leave it out
import { exchange } from "./exchange.mjs";
import { UnavailableError } from "./errors.mjs";
import { follow } from "./events.mjs";
import { verbSubject } from "./subjects.mjs";

/** @import { NatsConnection } from "@nats-io/nats-core" */
/** @import { ReplyError, RunError } from "./errors.mjs" */
/** @import { Alert, Approval, Change, Decided, Handoff, ProposalType, Result, Run, RunEvent, Snapshot, Town, TownSummary } from "./types.mjs" */

/**
 * @typedef {object} RequestOptions
 * @property {number} [timeout] how long the call may take with all its repetitions, in milliseconds; Infinity is
 *   24 days
 * @property {AbortSignal} [signal] gives the call up
 * @property {Record<string, string>} [headers] further headers: of `send` a `traceparent` and a
 *   `tracestate` go on to the plugin and the run events
 * @property {0 | 1} [revision] of `send` and `result`: the revision of the result; the server's default
 */

/**
 * The outcome of a handoff.
 * @typedef {object} Outcome
 * @property {Result} result
 * @property {string} runId the run that led to the result
 * @property {Result} [duplicate] the answer, where the result is the first one that it names: an
 *   attempt of the same call was accepted, and its answer was lost or was a 503
 */

/**
 * A client of one world over one connection. It is made by `connect`, or of a connection that its
 * caller has made.
 */
export class Client {
  #served = false;
  #connected = true;
  /** @type {Promise<void> | undefined} */
  #closing;
  /** @type {Set<() => void>} */
  #reconnects = new Set();
  /** @type {Set<() => void>} */
  #disconnects = new Set();
  /** @type {Set<(error?: Error) => void>} */
  #closes = new Set();
  /** @type {Error | undefined} */
  #failure;

  /**
   * @param {NatsConnection} nc
   * @param {{ world?: string, timeout?: number }} [options] the world, `main`, and how long a call may
   *   take, 30,000 milliseconds
   */
  constructor(nc, { world = "main", timeout = 30_000 } = {}) {
    /** The connection; `close` closes it. */
    this.nc = nc;
    this.world = checkedWorld(world);
    this.timeout = milliseconds(timeout);
    this.#watch();
    nc.closed().then((error) => {
      this.#failure = error ?? undefined;
      for (const listener of this.#closes) listener(this.#failure);
    });
  }

  async #watch() {
    for await (const status of this.nc.status()) {
      if (status.type === "reconnect") {
        this.#connected = true;
        for (const listener of this.#reconnects) listener();
      } else if (status.type === "disconnect") {
        this.#connected = false;
        for (const listener of this.#disconnects) listener();
      }
    }
  }

  /**
   * Calls a listener after each loss of the connection, until the function that it returns is called.
   * @param {() => void} listener
   * @returns {() => void}
   */
  onDisconnect(listener) {
    this.#disconnects.add(listener);
    return () => this.#disconnects.delete(listener);
  }

  /**
   * Calls a listener when the connection is closed, with an error where it was not closed by its caller, unless
   * the function that it returns is called before. A promise of the connection would hold what waits for it as
   * long as the connection lives.
   * @param {(error?: Error) => void} listener
   * @returns {() => void}
   */
  onClosed(listener) {
    if (this.nc.isClosed()) listener(this.#failure);
    else this.#closes.add(listener);
    return () => this.#closes.delete(listener);
  }

  /**
   * Calls a listener after each reconnection, until the function that it returns is called.
   * @param {() => void} listener
   * @returns {() => void}
   */
  onReconnect(listener) {
    this.#reconnects.add(listener);
    return () => this.#reconnects.delete(listener);
  }

  /**
   * Asks a verb, and returns its answer. After 429 and 503 it waits as long as the server says, and
   * asks again; where no answer comes it asks again too, unless that could be refused because the
   * first request was carried out. It throws a ReplyError or an UnavailableError.
   * @param {string} verb such as "town.get"
   * @param {unknown} [body]
   * @param {RequestOptions} [options]
   * @returns {Promise<any>}
   */
  async request(verb, body = {}, options = {}) {
    return json((await this.#ask(verb, body, options)).msg);
  }

  /**
   * @param {string} verb
   * @param {unknown} body
   * @param {RequestOptions} options
   * @param {() => Promise<UnavailableError | null>} [waits]
   * @param {(error: ReplyError | UnavailableError) => void} [refused]
   */
  async #ask(verb, body, options, waits = async () => null, refused = () => {}) {
    if (this.nc.isClosed()) {
      const why = this.#failure ? `: ${this.#failure.message}` : "";
      throw new UnavailableError("CONNECTION", `the connection is closed${why}`, this.#failure);
    }
    const headers = newHeaders();
    if (options.revision !== undefined) headers.set("Execution-Result-Revision", String(options.revision));
    for (const [name, value] of Object.entries(options.headers ?? {})) headers.set(name, value);
    const answer = await exchange({
      nc: this.nc, subject: verbSubject(this.world, verb), headers,
      payload: new TextEncoder().encode(JSON.stringify(body)),
      timeout: milliseconds(options.timeout ?? this.timeout), signal: options.signal,
      safe: !/** @type {readonly string[]} */ (changing).includes(verb), served: () => this.#served, waits, refused,
      onReconnect: (listener) => this.onReconnect(listener),
    });
    this.#served = true;
    return answer;
  }

  /**
   * Returns a town.
   * @param {string} townId
   * @param {RequestOptions} [options]
   * @returns {Promise<Town>}
   */
  town(townId, options) { return this.request("town.get", { townId }, options); }

  /**
   * Goes through the towns, in the order of their ids.
   * @param {RequestOptions & { after?: string, limit?: number }} [options] the town behind which to
   *   begin, and how many to ask for at once
   * @returns {AsyncGenerator<TownSummary>}
   */
  async *towns({ after, limit, ...options } = {}) {
    for (let next = after; ;) {
      const page = await this.request("town.list", { after: next, limit }, options);
      yield* page.towns;
      if (page.next === undefined) return;
      next = page.next;
    }
  }

  /**
   * Creates a town, or, with expectedSnapshotHash, replaces exactly that state of it. What applies its commands,
   * and which types of proposals take a person's approval, stay as they are where `apply` and `approval` are left out.
   * @param {Snapshot} snapshot
   * @param {RequestOptions & { expectedSnapshotHash?: string, apply?: Town["apply"],
   *   approval?: ProposalType[] }} [options]
   * @returns {Promise<Town>}
   */
  putTown(snapshot, { expectedSnapshotHash, apply, approval, ...options } = {}) {
    return this.request("town.put", { snapshot, expectedSnapshotHash, apply, approval }, options);
  }

  /**
   * Changes members of the state of a town that has that hash, by a JSON Merge Patch (RFC 7396) of its snapshot: a
   * list is replaced as a whole.
   * @param {string} townId
   * @param {object} patch such as `{ pressure: { hope: 0.75 } }`
   * @param {RequestOptions & { expectedSnapshotHash: string, approval?: ProposalType[] }} options
   * @returns {Promise<Town>}
   */
  patchTown(townId, patch, { expectedSnapshotHash, approval, ...options }) {
    return this.request("town.patch", { townId, patch, expectedSnapshotHash, approval }, options);
  }

  /**
   * Sends a handoff until it is answered, and verifies the result. It may always be sent again,
   * since the server accepts a key once. Where an attempt of this call was accepted, and its answer was
   * lost or was a 503, the next one is a duplicate; then the first result is returned.
   *
   * It throws a ReplyError, or an UnavailableError; where the town is paused its code is TOWN_PAUSED
   * or WORLD_PAUSED. Where the game of the town is away the code is PLUGIN_ABSENT, or EXECUTION_IN_PROGRESS
   * with the runId where the handoff is accepted: its command waits for the game, and the same handoff
   * may be sent again.
   * @param {Handoff} handoff
   * @param {RequestOptions & { onPaused?: (why: UnavailableError) => void }} [options] onPaused is
   *   called when the handoff is found to wait for the end of a pause, or for a game that is away
   * @returns {Promise<Outcome>}
   */
  async send(handoff, options = {}) { return send(this, (...asked) => this.#ask(...asked), handoff, options); }

  /**
   * Returns the result that a handoff would get now. Nothing is stored, and the key stays free. `apply` is
   * what would apply the command, where that is not the engine and the result is what the rules expect.
   * @param {Handoff} handoff
   * @param {RequestOptions} [options]
   * @returns {Promise<{ result: Result, apply?: string }>}
   */
  async dryRun(handoff, options = {}) { return dryRun((...asked) => this.#ask(...asked), handoff, options); }

  /**
   * Returns the result of the handoff that a town accepted with a key. Without townId it is that of
   * the last town that accepted the key.
   * @param {string} idempotencyKey
   * @param {RequestOptions & { townId?: string }} [options]
   * @returns {Promise<{ runId: string, result: Result }>}
   */
  async result(idempotencyKey, { townId, ...options } = {}) {
    const found = await this.request("result.get", { idempotencyKey, townId }, options);
    await verified(found.result, options.revision);
    return { runId: found.runId, result: found.result };
  }

  /**
   * Returns the state of a run.
   * @param {string} runId
   * @param {RequestOptions} [options]
   * @returns {Promise<Run>}
   */
  run(runId, options) { return this.request("run.get", { runId }, options); }

  /**
   * Goes through the runs that have begun from a time on, the newest first unless `order` is "oldest".
   * @param {RequestOptions & { townId?: string, from?: string, to?: string, status?: string,
   *   order?: "newest" | "oldest", limit?: number }} [options]
   * @returns {AsyncGenerator<Run>}
   */
  async *runs(options) {
    for await (const page of this.runPages(options)) yield* page.runs;
  }

  /**
   * As `runs`, page by page, and with `afterMark` the runs that have an event behind that mark. The list is
   * complete up to the mark of its first page.
   * @param {RequestOptions & { townId?: string, from?: string, to?: string, status?: string,
   *   afterMark?: number, order?: "newest" | "oldest", limit?: number }} [options]
   * @returns {AsyncGenerator<{ runs: Run[], next?: number, mark: number }>}
   */
  async *runPages({ townId, from, to, status, afterMark, order, limit, ...options } = {}) {
    for (let after; ;) {
      const request = { townId, from, to, status, afterMark, order, after, limit };
      const page = await this.request("run.list", request, options);
      yield page;
      if (page.next === undefined) return;
      after = page.next;
    }
  }

  /**
   * Goes through the events that a run has by now, behind afterSeq.
   * @param {string} runId
   * @param {RequestOptions & { afterSeq?: number, limit?: number }} [options]
   * @returns {AsyncGenerator<RunEvent>}
   */
  async *runEvents(runId, options) {
    for await (const page of this.runEventPages(runId, options)) yield* page.events;
  }

  /**
   * As `runEvents`, page by page, and with `afterMark` the events behind that mark. A page has the mark of its
   * last event.
   * @param {string} runId
   * @param {RequestOptions & { afterSeq?: number, afterMark?: number, limit?: number }} [options]
   * @returns {AsyncGenerator<{ events: RunEvent[], lastEventSeq: number, mark?: number }>}
   */
  async *runEventPages(runId, { afterSeq = 0, afterMark, limit, ...options } = {}) {
    for (let last = afterSeq; ;) {
      const request = { runId, afterSeq: last, afterMark: afterMark || undefined, limit };
      const page = await this.request("run.events", request, options);
      if (page.events.length === 0 && last < page.lastEventSeq && !afterMark) {
        throw new UnavailableError("INVALID_ANSWER",
          `the events of run ${runId} break off at ${last} of ${page.lastEventSeq}`);
      }
      yield page;
      last = page.events.at(-1)?.runSeq ?? page.lastEventSeq;
      if (last >= page.lastEventSeq) return;
    }
  }

  /**
   * Follows run events: each one once, those of a run in their order, through losses of the connection
   * too, however long they are. It ends by `break`, by signal, by `close` and, of one run, with the run. It asks
   * again, without end, while the server is away (no answer, 429, 503). Where the server closes the connection
   * for good, such as one of a user who is no longer known, it throws an UnavailableError with the code CONNECTION.
   *
   * - `{ runId, afterSeq }`: the events of one run behind afterSeq.
   * - `{ townId, from }`: those of a town; of all towns without townId. Runs that began at the time
   *   `from` or later are followed from their first event; without it, from now on. Of a run that
   *   began before, there is what comes from now on, however old it is (`openSince` has no effect any more).
   *
   * Of many runs, one whose events cannot be had is told to `onRunError`, once, and then left out; the others
   * go on. Without onRunError that RunError is thrown. Any other error is thrown.
   * @param {RequestOptions & { runId?: string, afterSeq?: number, townId?: string, from?: string,
   *   openSince?: number, onRunError?: (error: RunError) => void }} [options]
   * @returns {AsyncGenerator<RunEvent>}
   */
  events(options = {}) { return follow(this, options); }

  /**
   * Follows the changes of towns that no run has made, such as by `town.put`, each once, in the order of their
   * revisions: those of a town, or of all towns that the user hears of, behind the revision `after`, or from now
   * on. It subscribes to their notices, and asks `town.history` at first, after each reconnection, every 5 minutes
   * because notices may be lost on the server's side, and more often where there are no notices
   * (docs/contracts.md, Notices of changes); `onSeldom` is told whether that is so, whenever it is found out. It
   * ends by `break`, by signal and by `close`, and asks again while the server is away.
   *
   * Of one town nothing is missed that its history keeps; of all towns, nothing that is among the last 500 messages
   * of the log when it asks. Where the log has lost its end, or an older one was restored, it goes on behind the
   * newest revision that it finds when it asks: what was changed since the loss is not yielded.
   * @param {RequestOptions & { townId?: string, after?: number, onSeldom?: (seldom: boolean) => void }} [options]
   * @returns {AsyncGenerator<Change, void>}
   */
  changes(options = {}) { return followChanges(this, options); }

  /**
   * Goes through the alerts that are kept, the newest first; with `unacknowledged` through those that are not
   * acknowledged. Operators and observers may list them.
   * @param {RequestOptions & { unacknowledged?: boolean, limit?: number }} [options]
   * @returns {AsyncGenerator<Alert>}
   */
  async *alerts({ unacknowledged, limit, ...options } = {}) {
    for (let after; ;) {
      /** @type {{ alerts: Alert[], next?: number }} */
      const page = await this.request("alert.list", { unacknowledged, after, limit }, options);
      yield* page.alerts;
      if (page.next === undefined) return;
      after = page.next;
    }
  }

  /**
   * Acknowledges the alert with a seq, and returns it. The first acknowledgement counts, and `acknowledged`
   * is that one. `actorId` is who does it where NATS does not name the user. Operators may acknowledge.
   * @param {number} seq
   * @param {RequestOptions & { actorId?: string, reason?: string }} [options]
   * @returns {Promise<Alert>}
   */
  acknowledgeAlert(seq, { actorId, reason, ...options } = {}) {
    return this.request("alert.ack", { seq, actorId, reason }, options);
  }

  /**
   * Goes through the proposals that wait for a person's approval, in a town or in all, the oldest first, and
   * those that are approved and were not sent again yet. Operators, approvers and observers may list them.
   * @param {RequestOptions & { townId?: string, limit?: number }} [options]
   * @returns {AsyncGenerator<Approval>}
   */
  async *approvals({ townId, limit, ...options } = {}) {
    for (let after; ;) {
      /** @type {{ approvals: Approval[], next?: string }} */
      const page = await this.request("approval.list", { townId, after, limit }, options);
      yield* page.approvals;
      if (page.next === undefined) return;
      after = page.next;
    }
  }

  /**
   * Decides about a proposal that waits in a town. With `submit` the server executes what was approved at once. `actorId`
   * is who decides where NATS does not name the user. Operators and approvers may decide; of two who do, the
   * second gets a ReplyError with the code ALREADY_DECIDED. The same decision of the same person may be sent
   * again where no answer came, and is answered as the first one as long as the proposal stands.
   * @param {string} handoffId
   * @param {"approve" | "reject"} decision
   * @param {RequestOptions & { townId: string, reason: string, actorId?: string, submit?: boolean,
   *   handoffHash?: string }} options `townId` and `handoffHash` are of the Approval that was shown
   * @returns {Promise<Decided>}
   */
  async decide(handoffId, decision, { townId, handoffHash, reason, actorId, submit, ...options }) {
    const request = { handoffId, townId, handoffHash, decision, reason, actorId, submit };
    /** @type {Decided} */
    const decided = await this.request("approval.decide", request, options);
    if (decided.result) await verified(decided.result);
    return decided;
  }

  /** Closes the connection, when what was sent has left if the server is there. It may be called again. */
  close() {
    this.#closing ??= this.#close();
    return this.#closing;
  }

  async #close() {
    const lost = new Promise((resolve) => { this.onDisconnect(() => resolve(null)); });
    if (this.#connected && !this.nc.isClosed()) await Promise.race([this.nc.drain().catch(() => {}), lost]);
    await this.nc.close();
  }
}
