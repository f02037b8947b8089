// The loop that loses no decision and repeats none: it stores a handoff before it sends it, and sends the stored
// bytes until it has their result. It may be killed at any moment: node loop.mjs FILE
import { open, readFile, rename, rm } from "node:fs/promises";
import { setTimeout as sleep } from "node:timers/promises";
import { connect, environment, makeHandoff, ReplyError } from "worldengine-client";

const file = process.argv[2];
const engine = await connect({ servers: "127.0.0.1:4222", ...environment() });
const { status, reasonCode, resultId } = await settle();
console.log(status, reasonCode, resultId);
await engine.close();

// settle brings the handoff of the file to its result; without the file it decides first.
async function settle() {
  const handoff = await readFile(file, "utf8").then(JSON.parse, decide);
  for (;;) {
    try {
      const found = await result(handoff);
      await rm(file);
      return found;
    } catch (error) {
      if (error instanceof ReplyError && error.status < 500 && error.status !== 429) { // it never will have a result
        await rm(file);
        throw error;
      }
      console.error("again in a second:", error.message); // not known, or not now: the same bytes are safe
      await sleep(1000);
    }
  }
}

// result sends a stored handoff. It may have been sent before: then a duplicate names the first result.
async function result(handoff) {
  const { result } = await engine.send(handoff);
  if (result.status !== "duplicate") return result;
  const first = await engine.result(handoff.idempotencyKey, { townId: handoff.proposal.townId });
  return first.result.handoffId === handoff.handoffId ? first.result : result; // else another has used the key
}

// decide makes a handoff, and stores it before anybody sees it.
async function decide(error) {
  if (error.code !== "ENOENT") throw error;
  const handoff = await makeHandoff(await engine.town("town-threatened"), {
    type: "TOWNSFOLK_TALK", args: { talkType: "morale-boost" }, actorId: "mayor-1", reason: "The town is afraid.",
  });
  const stored = await open(`${file}.new`, "w");
  await stored.writeFile(JSON.stringify(handoff));
  await stored.sync();
  await stored.close();
  await rename(`${file}.new`, file); // after a crash the file is missing, or has all of the handoff
  return handoff;
}
