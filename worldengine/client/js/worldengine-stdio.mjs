#!/usr/bin/env node
// worldengine-stdio is an engine script for bridges that speak to their engine over standard input and
// output, such as the mineflayer bridge in its mode engine_proxy (ENGINE_SCRIPT=worldengine-stdio.mjs).
//
// It prints `--- WORLD ONLINE ---` when the world answers, and nothing before. Each line of standard input is an
// execution-handoff.v1, and gets one line: its execution-result.v1 of revision 1, or {"type": "error",
// "code", "message", "handoffId", "idempotencyKey"}, with the ids of the input line. A line may also be a
// world-memory-request.v1, and gets its world-memory-context.v1. The output is in the order in which the handoffs
// end. While the server is away the script repeats a handoff until it has a result. `exit` and the end of the input
// end the script at any time. Its exit status is 0, or 1 if the server refuses it; standard error has the reason.
//
// It connects as the NATS command line does (NATS_URL, NATS_USER, …); WORLDENGINE_WORLD is the world.
import { connect, environment, ReplyError, UnavailableError } from "./index.mjs";
import { linesOf } from "./lines.mjs";

/** The time for unfinished handoffs after `exit`, and after the end of the input, in ms. */
const afterExit = 300, afterEnd = 10_000;
/** How long the server may be silent before standard error says so, in ms. */
const silence = 2000;

const world = process.env.WORLDENGINE_WORLD || "main";

/** @param {unknown} line */
const print = (line) => { process.stdout.write(`${JSON.stringify(line)}\n`); };
/** @param {string} code @param {string} message @param {any} [handoff] */
const printError = (code, message, handoff) =>
  print({ type: "error", code, message, handoffId: handoff?.handoffId, idempotencyKey: handoff?.idempotencyKey });
/** @param {string} text */
const warn = (text) => { process.stderr.write(`worldengine-stdio: ${text}\n`); };
process.stdout.on("error", () => process.exit(0)); // nobody reads any more

/** Connects, and waits until the world answers. */
async function begin() {
  const servers = environment().servers ?? "127.0.0.1:4222";
  const waiting = setTimeout(warn, silence,
    `the world ${world} does not answer yet: is handoffd started, and NATS_URL its address? It is asked again`);
  const engine = await connect({
    servers, name: "worldengine-stdio", waitOnFirstConnect: true, reconnectTimeWait: 250, world,
    callTimeout: Infinity, ...environment(),
  });
  engine.onClosed((error) => fail(error ?? new Error("the connection is closed")));
  await online(engine);
  clearTimeout(waiting);
  process.stdout.write("--- WORLD ONLINE ---\n");
  return engine;
}

/** Waits until the world answers. @param {import("./index.mjs").Client} engine */
async function online(engine) {
  for (;;) {
    try {
      await engine.request("town.list", { limit: 1 }, { timeout: 5000 });
      return;
    } catch (error) {
      // A refusal is an answer too: the user may have no right to list towns.
      if (error instanceof ReplyError && error.status < 500) return;
      if (error instanceof UnavailableError && ["CONNECTION", "PERMISSION_DENIED"].includes(error.code)) throw error;
      await new Promise((resolve) => { setTimeout(resolve, 250); });
    }
  }
}

/** Answers one line. @param {string} line @returns {Promise<void>} */
async function answer(line) {
  const engine = await ready;
  const [word] = line.split(/\s/, 1);
  if (word === "talk" || word === "god") {
    return printError("NOT_SERVED",
      `${word} is not served here: this engine takes one execution-handoff.v1, or world-memory-request.v1, a line`);
  }
  let asked;
  try {
    asked = JSON.parse(line);
  } catch (error) {
    return printError("INVALID_JSON", `the line is no JSON: ${/** @type {Error} */ (error).message}`);
  }
  try {
    print(asked?.type === "world-memory-request.v1" ? await engine.request("memory.get", asked)
      : (await engine.send(asked, { revision: 1 })).result);
  } catch (error) {
    const { code = "INTERNAL", message } = /** @type {any} */ (error);
    printError(code, message, asked);
  }
}

/** @type {Set<Promise<void>>} */
const underWay = new Set();

/** Ends the script when all handoffs are done, or after some time. @param {number} ms */
async function end(ms) {
  if (ended) return;
  ended = true;
  const late = new Promise((resolve) => { setTimeout(resolve, ms); });
  await Promise.race([Promise.allSettled(underWay), late]);
  process.stdout.write("", () => process.exit(status)); // after the earlier lines
}

/** Ends the script if it cannot ask any more, even after the end of its input. @param {any} error */
function fail(error) {
  if (told || status !== 0) return;
  status = 1;
  warn(error.message);
  end(afterExit);
}

/** The script is ending; `exit` ended it; its exit status. */
let ended = false, told = false, status = 0;
const ready = begin();
ready.catch(fail);
for await (const raw of linesOf(process.stdin.setEncoding("utf8"))) {
  const line = raw.trim();
  if (line === "" || ended) continue;
  if (/^exit(\s|$)/.test(line)) {
    told = true;
    end(afterExit);
  } else {
    const work = answer(line).finally(() => underWay.delete(work));
    work.catch(() => {}); // ready reports the error
    underWay.add(work);
  }
}
end(afterEnd);
