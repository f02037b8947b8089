import { headers as newHeaders } from "@nats-io/nats-core";
import { checkedWorld, json, milliseconds, verified } from "./checks.mjs";
import { changing } from "./contract.gen.mjs";
import { dryRun, send } from "#handoffs"; // a name, so that the console's bundle can leave it out
import { exchange } from "./exchange.mjs";
import { UnavailableError } from "./errors.mjs";
import { commits, events } from "./follow.mjs";
import { verbSubject } from "./subjects.mjs";

/** @import { NatsConnection } from "@nats-io/nats-core" */
/** @import { ReplyError } from "./errors.mjs" */
/** @import { Followed } from "./follow.mjs" */
/** @import { Alert, Approval, Change, Commit, Decided, Handoff, Loss, Memory, ProposalType, Result, Run, RunEvent, Snapshot, Town, ListedTown, ListedWorld } from "./types.mjs" */

/**
 * @typedef {object} RequestOptions
 * @property {number} [timeout] the time for the call with all its repetitions, in milliseconds; Infinity means 24
 *   days; a `waitMs` of the request is added
 * @property {AbortSignal} [signal] aborts the call
 * @property {Record<string, string>} [headers] further headers: the plugin and the run events get the `traceparent`
 *   and `tracestate` of `send`
 * @property {0 | 1} [revision] of `send` and `result`: the revision of the result; the server's default
 */

/**
 * Options of `send`.
 * @typedef {RequestOptions & { onPaused?: (why: UnavailableError) => void, approvalWait?: number,
 *   onApproval?: (result: Result) => void }} SendOptions
 */

/**
 * The outcome of a handoff.
 * @typedef {object} Outcome
 * @property {Result} result
 * @property {string} runId the run of the result
 * @property {Result} [duplicate] the answer to the last attempt of the call, if an earlier attempt was accepted and
 *   its answer was lost or was a 503; `result` is the one of the earlier attempt then
 */

/** A client of one world over one connection: from `connect`, or over the caller's connection. */
export class Client {
  #served = false;
  #connected = true;
  /** @type {Promise<void> | undefined} */
  #closing;
  /** The listeners by the states of the connection. @type {Record<string, Set<(error?: Error) => void>>} */
  #listeners = { reconnect: new Set(), disconnect: new Set(), close: new Set() };
  /** @type {Error | undefined} */
  #failure;

  /**
   * @param {NatsConnection} nc
   * @param {{ world?: string, timeout?: number }} [options] the world, `main`, and the time for a call, 30,000
   *   milliseconds
   */
  constructor(nc, { world = "main", timeout = 30_000 } = {}) {
    /** The connection; `close` closes it. */
    this.nc = nc;
    this.world = checkedWorld(world);
    this.timeout = milliseconds(timeout);
    this.#watch();
    nc.closed().then((error) => {
      this.#failure = error ?? undefined;
      for (const listener of this.#listeners.close) listener(this.#failure);
    });
  }

  async #watch() {
    for await (const { type } of this.nc.status()) {
      if (type !== "reconnect" && type !== "disconnect") continue;
      this.#connected = type === "reconnect";
      for (const listener of this.#listeners[type]) listener();
    }
  }

  /** @param {string} state @param {(error?: Error) => void} listener */
  #on(state, listener) {
    this.#listeners[state].add(listener);
    return () => { this.#listeners[state].delete(listener); };
  }

  /**
   * Calls a listener after each loss of the connection. It returns a function that ends this.
   * @param {() => void} listener
   * @returns {() => void}
   */
  onDisconnect(listener) { return this.#on("disconnect", listener); }

  /**
   * Calls a listener when the connection is closed, with an error unless the caller closed it. It returns a function
   * that ends this. The connection's own promise would keep its waiters in memory as long as the connection lives.
   * @param {(error?: Error) => void} listener
   * @returns {() => void}
   */
  onClosed(listener) {
    if (!this.nc.isClosed()) return this.#on("close", listener);
    listener(this.#failure);
    return () => {};
  }

  /**
   * Calls a listener after each reconnection. It returns a function that ends this.
   * @param {() => void} listener
   * @returns {() => void}
   */
  onReconnect(listener) { return this.#on("reconnect", listener); }

  /**
   * Sends a request to a verb, and returns the reply. It repeats the request after 429 and 503 when the server says
   * so, and if no answer comes. It does not repeat a request that changes something and may have been carried out.
   * It throws a ReplyError or an UnavailableError.
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
    const { waitMs = 0 } = /** @type {{ waitMs?: number }} */ (body ?? {});
    const answer = await exchange({
      nc: this.nc, subject: verbSubject(this.world, verb), headers,
      payload: new TextEncoder().encode(JSON.stringify(body)),
      timeout: milliseconds((options.timeout ?? this.timeout) + waitMs), waitMs, signal: options.signal,
      safe: !/** @type {readonly string[]} */ (changing).includes(verb), served: () => this.#served, waits, refused,
      onReconnect: (listener) => this.onReconnect(listener),
    });
    this.#served = true;
    return answer;
  }

  /**
   * Iterates over the rows of a list, page by page. Each page has them as `member`.
   * @param {string} verb @param {string} member @param {Record<string, unknown>} query
   * @param {RequestOptions} options
   * @returns {AsyncGenerator<any>}
   */
  async *#rows(verb, member, query, options) {
    for (let { after } = query; ;) {
      const page = await this.request(verb, { ...query, after }, options);
      yield* page[member];
      if (page.next === undefined) return;
      after = page.next;
    }
  }

  /**
   * Returns a town.
   * @param {string} townId
   * @param {RequestOptions} [options]
   * @returns {Promise<Town>}
   */
  town(townId, options) { return this.request("town.get", { townId }, options); }

  /**
   * Returns the memory of a town, or of all towns with null: a world-memory-context.v1.
   * @param {string | null} townId
   * @param {RequestOptions & { chronicleLimit?: number, historyLimit?: number }} [options] how many entries of
   *   the chronicle and of the history, 1 to 5 each: 3 and 4
   * @returns {Promise<Memory>}
   */
  memory(townId, { chronicleLimit = 3, historyLimit = 4, ...options } = {}) {
    return this.request("memory.get", {
      type: "world-memory-request.v1", schemaVersion: 1,
      scope: { townId, factionId: null, chronicleLimit, historyLimit },
    }, options);
  }

  /**
   * Iterates over the towns.
   * @param {RequestOptions & { after?: string, limit?: number, text?: string, state?: string, sort?: string }} [options]
   *   the town before the first one, the size of a page, and the filters and the order of town.list
   * @returns {AsyncGenerator<ListedTown>}
   */
  towns({ after, limit, text, state, sort, ...options } = {}) {
    return this.#rows("town.list", "towns", { after, limit, text, state, sort }, options);
  }

  /**
   * Iterates over the worlds of the server that the user may use, in the order of their names.
   * @param {RequestOptions & { after?: string, limit?: number }} [options]
   *   the world before the first one, and the size of a page
   * @returns {AsyncGenerator<ListedWorld>}
   */
  worlds({ after, limit, ...options } = {}) {
    return this.#rows("worlds.list", "worlds", { after, limit }, options);
  }

  /**
   * Creates a town, or with expectedSnapshotHash replaces exactly that state of it. Without `apply` and `approval`
   * the town keeps its own.
   * @param {Snapshot} snapshot
   * @param {RequestOptions & { expectedSnapshotHash?: string, apply?: Town["apply"],
   *   approval?: ProposalType[] }} [options]
   * @returns {Promise<Town>}
   */
  putTown(snapshot, { expectedSnapshotHash, apply, approval, ...options } = {}) {
    return this.request("town.put", { snapshot, expectedSnapshotHash, apply, approval }, options);
  }

  /**
   * Applies a JSON Merge Patch (RFC 7396) to the snapshot of a town that has the state with that hash. A list is
   * replaced as a whole.
   * @param {string} townId
   * @param {object} patch such as `{ pressure: { hope: 0.75 } }`
   * @param {RequestOptions & { expectedSnapshotHash: string, approval?: ProposalType[] }} options
   * @returns {Promise<Town>}
   */
  patchTown(townId, patch, { expectedSnapshotHash, approval, ...options }) {
    return this.request("town.patch", { townId, patch, expectedSnapshotHash, approval }, options);
  }

  /**
   * Removes a town. Operators may call it.
   * @param {string} townId
   * @param {RequestOptions} [options]
   * @returns {Promise<{ townId: string, snapshotHash: string, decisionEpoch: number, revision: number }>} its last
   *   state, and the revision of the removal
   */
  removeTown(townId, options) {
    return this.request("town.remove", { townId }, options);
  }

  /**
   * Sends a handoff until it is answered, and verifies the result. The same handoff may be sent again at any time,
   * since the server accepts a key once. If an attempt of this call was accepted, and its answer was lost or was a
   * 503, the next attempt is a duplicate. Then `send` returns the first result.
   *
   * It throws a ReplyError or an UnavailableError. If the town is paused until the call ends, the code is TOWN_PAUSED
   * or WORLD_PAUSED; a call that ends before the server's --pause-wait gets TIMEOUT. If the town's game is absent until
   * then, the code is PLUGIN_ABSENT. If the handoff is accepted and its command waits for the game, the code is
   * EXECUTION_IN_PROGRESS, and the error has the runId.
   *
   * If the handoff needs a person's approval, `send` waits `approvalWait` milliseconds for the decision, and sends the
   * handoff again. Without `approvalWait`, or after it, the result is rejected with APPROVAL_REQUIRED.
   * @param {Handoff} handoff
   * @param {SendOptions} [options] onPaused is called when the handoff waits for the end of a pause or for an absent
   *   game; onApproval while it waits for a person, about once a minute
   * @returns {Promise<Outcome>}
   */
  async send(handoff, options = {}) { return send(this, (...asked) => this.#ask(...asked), handoff, options); }

  /**
   * Returns the result that a handoff would get now. The server stores nothing. `apply` is plugin or rcon if a game
   * would apply the command; in that case the rules predict the result.
   * @param {Handoff} handoff
   * @param {RequestOptions} [options]
   * @returns {Promise<{ result: Result, apply?: string }>}
   */
  async dryRun(handoff, options = {}) { return dryRun((...asked) => this.#ask(...asked), handoff, options); }

  /**
   * Returns the result of the handoff that a town accepted with a key. Without townId it is the last town that
   * accepted the key.
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
   * Iterates over the runs that pass the filters of run.list, the newest first unless `order` is "oldest".
   * @param {RequestOptions & { townId?: string, actorId?: string, type?: string, status?: string, reasonCode?: string,
   *   id?: string, from?: string, to?: string, order?: "newest" | "oldest", limit?: number }} [options]
   * @returns {AsyncGenerator<Run>}
   */
  runs({ townId, actorId, type, status, reasonCode, id, from, to, order, limit, ...options } = {}) {
    const query = { townId, actorId, type, status, reasonCode, id, from, to, order, limit };
    return this.#rows("run.list", "runs", query, options);
  }

  /**
   * Iterates over the present events of a run, after afterSeq.
   * @param {string} runId
   * @param {RequestOptions & { afterSeq?: number, limit?: number }} [options]
   * @returns {AsyncGenerator<RunEvent>}
   */
  async *runEvents(runId, { afterSeq = 0, limit, ...options } = {}) {
    for (let last = afterSeq; ;) {
      const page = await this.request("run.events", { runId, afterSeq: last, limit }, options);
      if (page.events.length === 0 && last < page.lastEventSeq) {
        throw new UnavailableError("INVALID_ANSWER",
          `the events of run ${runId} break off at ${last} of ${page.lastEventSeq}`);
      }
      yield* page.events;
      last = page.events.at(-1)?.runSeq ?? page.lastEventSeq;
      if (last >= page.lastEventSeq) return;
    }
  }

  /**
   * Follows the commits of the world's log, each once and in order, even if the connection is lost: of a town, or of
   * all towns that the user may read. It begins after the cursor `after` ("0" for the oldest commit), or with the next
   * commit. A reader keeps the `cursor` of its last commit, and continues with it after a restart.
   *
   * It ends by `break`, by signal and by `close`. While no server answers, or it answers 429 or 503, it asks again. If
   * the server closes the connection for good, as for a removed user, it throws an UnavailableError with the code
   * CONNECTION.
   *
   * `onLost` is called if commits may be missing, and following continues. The reasons are `GAP` (the log no longer
   * keeps some, perhaps of other towns), `DAMAGED` (an unreadable one, which is yielded without events) and
   * `INVALID_CURSOR` (the log has lost its end, or was replaced by an older one; following continues at its end). If
   * the log does not have `after` at the beginning, it throws a ReplyError with the code INVALID_CURSOR.
   * @param {Followed & { onLost?: (loss: Loss) => void }} [options]
   * @returns {AsyncGenerator<Commit, void>}
   */
  commits(options = {}) { return commits(this, options); }

  /**
   * Follows run events as `commits` follows commits: each event once, the events of a run in order.
   *
   * - `{ runId, afterSeq }`: the events of one run after afterSeq. It ends with the run.
   * - `{ townId, from }`: the events of a town, or without townId of all towns, that were persisted at the time `from`
   *   (RFC 3339, or a Date) or later; with `after` the events after that cursor; without both the next ones.
   * @param {Followed & { onLost?: (loss: Loss) => void, from?: string | Date, runId?: string, afterSeq?: number }} [options]
   * @returns {AsyncGenerator<RunEvent, void>}
   */
  events(options = {}) { return events(this, options); }

  /**
   * Follows the changes of towns without a run, such as by `town.put`, as `commits` follows commits: after the
   * revision `after`, or from the next change on.
   * @param {Omit<Followed, "after"> & { after?: number, onLost?: (loss: Loss) => void }} [options]
   * @returns {AsyncGenerator<Change, void>}
   */
  async *changes({ after, ...options } = {}) {
    for await (const commit of this.commits({ ...options, after: after?.toString() })) {
      if (commit.revision && commit.events?.length === 0) yield /** @type {Change} */ (commit);
    }
  }

  /**
   * Iterates over the alerts that are kept, the newest first; with `unacknowledged` only over those that are not
   * acknowledged. Operators and observers may call it.
   * @param {RequestOptions & { unacknowledged?: boolean, limit?: number }} [options]
   * @returns {AsyncGenerator<Alert>}
   */
  alerts({ unacknowledged, limit, ...options } = {}) {
    return this.#rows("alert.list", "alerts", { unacknowledged, limit }, options);
  }

  /**
   * Acknowledges the alert with a seq. It returns the alert with its first acknowledgement, which counts. `actorId` is
   * the operator if the server has no access control. Operators may call it.
   * @param {number} seq
   * @param {RequestOptions & { actorId?: string, reason?: string }} [options]
   * @returns {Promise<Alert>}
   */
  acknowledgeAlert(seq, { actorId, reason, ...options } = {}) {
    return this.request("alert.ack", { seq, actorId, reason }, options);
  }

  /**
   * Iterates over the proposals of a town, or of all towns, that wait for a person's decision or, if approved, for
   * their handoff: the oldest first. With `closed` it iterates over those that wait no longer, the newest first.
   * Operators, approvers and observers may call it.
   * @param {RequestOptions & { townId?: string, closed?: boolean, limit?: number }} [options]
   * @returns {AsyncGenerator<Approval>}
   */
  approvals({ townId, closed, limit, ...options } = {}) {
    return this.#rows("approval.list", "approvals", { townId, closed, limit }, options);
  }

  /**
   * Approves or denies a proposal that waits in a town. With `submit` the server executes an approved handoff at once.
   * `actorId` is the person if NATS does not name the user. Operators and approvers may call it; the second of two
   * decisions gets a ReplyError with the code ALREADY_DECIDED. If no answer came, the caller may repeat the decision:
   * the same decision by the same person gets the same answer.
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

  /** Closes the connection after sent messages have left, if the server is there. It may be called again. */
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
