#!/usr/bin/env node
// worldengine-stdio is an engine script for bridges that speak to their engine over standard input and
// output, such as the mineflayer bridge in its mode engine_proxy (ENGINE_SCRIPT=worldengine-stdio.mjs).
//
// It prints `--- WORLD ONLINE ---` when the world answers. Each line of standard input is an
// execution-handoff.v1, and gets one line: its execution-result.v1 of revision 1, or {"type": "error",
// "code", "message"}. Lines come in the order in which the handoffs are done. While the server is away
// the same handoff is asked again, and its line comes when there is a result. `exit` ends the script.
//
// It connects as the NATS command line does (NATS_URL, NATS_USER, …); WORLDENGINE_WORLD is the world.
import { createInterface } from "node:readline";
import { connect, environment, ReplyError, UnavailableError } from "./index.mjs";

/** How long what is under way may take after `exit`, and after the end of the input, in ms. */
const afterExit = 300, afterEnd = 10_000;
/** As long as a timer can be: a handoff is asked again until it is answered. */
const forever = 2 ** 31 - 1;

const engine = await connect({
  servers: "127.0.0.1:4222", name: "worldengine-stdio", waitOnFirstConnect: true, reconnectTimeWait: 250,
  world: process.env.WORLDENGINE_WORLD || "main", ...environment(),
});

/** @param {unknown} line */
const print = (line) => { process.stdout.write(`${JSON.stringify(line)}\n`); };
/** @param {string} code @param {string} message */
const printError = (code, message) => print({ type: "error", code, message });
process.stdout.on("error", () => process.exit(0)); // nobody reads any more

/** Waits until the world answers. */
async function online() {
  for (;;) {
    try {
      await engine.request("town.list", { limit: 1 }, { timeout: 5000 });
      return;
    } catch (error) {
      // An answer that refuses is an answer; a user may be without the right to list.
      if (error instanceof ReplyError && error.status < 500) return;
      if (error instanceof UnavailableError && ["CONNECTION", "PERMISSION_DENIED"].includes(error.code)) throw error;
      await new Promise((resolve) => { setTimeout(resolve, 250); });
    }
  }
}

/** Answers one line. @param {string} line @returns {Promise<void>} */
async function answer(line) {
  let handoff;
  try {
    handoff = JSON.parse(line);
  } catch (error) {
    return printError("INVALID_JSON", `the line is no JSON: ${/** @type {Error} */ (error).message}`);
  }
  try {
    print((await engine.send(handoff, { revision: 1, timeout: forever })).result);
  } catch (error) {
    const { code = "INTERNAL", message, details = [] } = /** @type {any} */ (error);
    printError(code, [message, ...details.map((/** @type {any} */ d) => `${d.path}: ${d.message}`)].join("; "));
  }
}

/** @type {Set<Promise<void>>} */
const underWay = new Set();

/** Ends the script when what is under way is done, or after some time. @param {number} ms */
async function end(ms) {
  const late = new Promise((resolve) => { setTimeout(resolve, ms); });
  await Promise.race([Promise.all(underWay), late]);
  process.stdout.write("", () => process.exit(0)); // behind the lines before
}

await online();
process.stdout.write("--- WORLD ONLINE ---\n");
const lines = createInterface({ input: process.stdin, crlfDelay: Infinity });
let ended = false;
lines.on("line", (raw) => {
  const line = raw.trim();
  if (line === "" || ended) return;
  const [word] = line.split(/\s/, 1);
  if (word === "exit") {
    ended = true;
    end(afterExit);
  } else if (word === "talk" || word === "god") {
    printError("NOT_SERVED", `${word} is not served here: this engine takes one execution-handoff.v1 a line`);
  } else {
    const work = answer(line).finally(() => underWay.delete(work));
    underWay.add(work);
  }
});
lines.on("close", () => { if (!ended) end(afterEnd); });
