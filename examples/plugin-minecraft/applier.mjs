// Applies commands to the world: in order per town, a few per tick, every id at most once.
//
//   offer (network) → line of its town → begin record → ready → tick → end record → answer
//
// offer never touches the world and tick never waits for the network or the disk.
import { applied, busy, inProgress, parseCommand, refused, TYPES } from "./protocol.mjs";
import { cleanText, plan } from "./build.mjs";

// When to ask again about what is busy or in progress: a few ticks of 50 ms.
const RETRY_MS = 200;

export class Applier {
  counts = { applied: 0, refused: 0, repeated: 0, busy: 0, unreadable: 0 };
  #memory;
  #world;
  #config;
  #now;
  #log;
  #items = new Map(); // id → item: all that are in hand, at most limits.queue
  #lines = new Map(); // town → its items, in order; the first is the town's turn
  #turns = []; // first items of their towns that are not begun
  #begun = 0; // how many are begun and not through their last tick
  #ready = []; // begun, recorded, and waiting for a tick

  // world has missing(steps), which returns those that don't stand yet, and perform(step).
  constructor({ memory, world, config, log = () => {}, now = () => performance.now() }) {
    this.#memory = memory;
    this.#world = world;
    this.#config = config;
    this.#log = log;
    this.#now = now;
  }

  // configure changes towns, allow and limits for what is not begun.
  configure(config) { this.#config = config; }

  // waiting is how many commands are in hand.
  get waiting() { return this.#items.size; }

  // offer takes a request. reply is called with its one answer, at once or later.
  offer(text, reply) {
    const { command, problem } = parseCommand(text);
    if (!command) {
      this.counts.unreadable++;
      return;
    }
    const id = command.applyId;
    if (problem) return this.#answer(reply, refused(id, "INVALID_COMMAND", problem));
    const item = this.#items.get(id);
    if (item) return this.#takeAgain(item, command, reply);
    const known = this.#memory.get(id);
    if (known?.answer) {
      this.counts.repeated++;
      return reply(known.answer);
    }
    if (this.#items.size >= this.#config.limits.queue) return this.#answer(reply, busy(id, RETRY_MS));
    this.#enqueue({ command, reply, expires: this.#expiry(command), begun: false, work: [] });
    this.#beginSome();
  }

  // tick changes the world. The game calls it on its own tick.
  tick() {
    let { commandsPerTick: commands, blocksPerTick: blocks } = this.#config.limits;
    while (this.#ready.length > 0 && commands > 0 && blocks > 0) {
      const item = this.#ready[0];
      const steps = item.steps.splice(0, blocks);
      blocks -= steps.length;
      for (const step of steps) {
        item.work.push(this.#world.perform(step).catch((err) => { item.error ??= err; }));
      }
      if (item.steps.length > 0) return; // the rest on the next tick
      this.#ready.shift();
      commands--;
      this.#end(item);
    }
  }

  // The engine counts timeoutMs from when it sent the request, and its clock may not be ours.
  #expiry(command) { return this.#now() + command.timeoutMs; }

  // takeAgain takes a request for an id that is in hand. The one before it is not waited for any more
  // where the command is not begun, so the new one takes its place, with its later deadline.
  #takeAgain(item, command, reply) {
    const id = command.applyId;
    if (item.begun) return this.#answer(reply, inProgress(id, RETRY_MS));
    this.#answer(item.reply, busy(id, RETRY_MS));
    item.reply = reply;
    item.expires = this.#expiry(command);
  }

  #enqueue(item) {
    const { applyId, townId } = item.command;
    this.#items.set(applyId, item);
    const line = this.#lines.get(townId) ?? [];
    this.#lines.set(townId, line);
    line.push(item);
    if (line.length === 1) this.#turns.push(item);
  }

  // beginSome begins no more than a tick can take, so that what is begun is done soon, and the rest can
  // still expire.
  #beginSome() {
    while (this.#begun < this.#config.limits.commandsPerTick && this.#turns.length > 0) {
      this.#begun++;
      this.#begin(this.#turns.shift());
    }
  }

  async #begin(item) {
    const id = item.command.applyId;
    item.begun = true;
    const { steps, refusal } = this.#judge(item);
    if (refusal) {
      this.#begun--;
      // A definite refusal is remembered, since it must stay the same; a retryable one need not.
      return this.#finish(item, refusal, refusal.retryable ? undefined : this.#memory.end(id, refusal));
    }
    try {
      await this.#memory.begin(id);
    } catch (err) {
      this.#log(`cannot remember ${id}, so it is not begun: ${err.message}`);
      this.#begun--;
      return this.#finish(item, busy(id, 1000));
    }
    try {
      item.steps = await this.#world.missing(steps);
    } catch (err) {
      item.steps = [];
      item.error = err;
    }
    this.#ready.push(item);
  }

  // judge says what to do. A command that was begun before a restart may stand half done, so it is
  // completed and never refused for being late.
  #judge({ command, expires }) {
    const id = command.applyId;
    const { towns, allow } = this.#config;
    const place = Object.hasOwn(towns, command.townId) && towns[command.townId];
    if (!place) return { refusal: refused(id, "UNKNOWN_TOWN", "This server does not host the town.") };
    if (!this.#memory.get(id)) {
      if (!allow.includes(command.type)) {
        return { refusal: refused(id, "NOT_ALLOWED", "This server does not allow such commands.") };
      }
      if (this.#now() >= expires) {
        return { refusal: refused(id, "DEADLINE_PASSED", "Its time was over before its turn came.", true) };
      }
    }
    const { steps, reasonCode, message } = plan(command, place);
    return steps ? { steps } : { refusal: refused(id, reasonCode, message) };
  }

  // end completes a command whose last step was taken on a tick.
  async #end(item) {
    const id = item.command.applyId;
    await Promise.all(item.work);
    this.#begun--;
    if (item.error) {
      // It stays begun in memory: another attempt completes what stands half done.
      this.#log(`${item.command.type} ${id} failed: ${item.error.stack}`);
      return this.#finish(item, refused(id, "WORLD_ERROR", "The game could not do it.", true));
    }
    return this.#finish(item, applied(id), this.#memory.end(id, applied(id)));
  }

  // finish answers, after what must be on the disk before, and gives the town's turn to the next.
  async #finish(item, answer, recorded) {
    const { applyId, townId } = item.command;
    try {
      await recorded;
    } catch (err) {
      this.#log(`cannot remember the end of ${applyId}: ${err.message}`);
      answer = inProgress(applyId, 1000); // asked again, it is looked at again and recorded
    }
    const { type, args } = item.command, reason = answer.reasonCode ? ` ${answer.reasonCode}` : "";
    const about = `${type} ${cleanText(args[TYPES[type]], 40)} in ${cleanText(townId, 40)}`; // words of agents
    this.#log(`${answer.status}${reason}: ${about}, ${applyId}`);
    this.#items.delete(applyId);
    const line = this.#lines.get(townId);
    line.shift();
    if (line.length > 0) this.#turns.push(line[0]);
    else this.#lines.delete(townId);
    this.#answer(item.reply, answer);
    this.#beginSome();
  }

  #answer(reply, answer) {
    if (answer.status in this.counts) this.counts[answer.status]++;
    reply(answer);
  }
}
