// The wire between the world engine and a plugin: command-apply.v1 is asked, command-applied.v1 is
// answered. `handoffctl schema` prints both.
import { createHash } from "node:crypto";
import { TYPES } from "./types.gen.mjs";

export { TYPES };

// The subject on which the engine asks about a town.
export const applySubject = (world, townId) => `worldengine.v1.${world}.apply.${townToken(townId)}`;

// The subjects on which plugins ask each other who hosts a town, and who hosts any town.
export const hostsSubject = (world, townId) => `worldengine.v1.${world}.hosts.${townToken(townId)}`;
export const allHostsSubject = (world) => `worldengine.v1.${world}.hosts.=all`;

// A town id in a subject is its UTF-8 with every byte outside A-Z a-z 0-9 _ - percent-encoded; one
// that is longer than 128 bytes then is "=" and the SHA-256 of the id.
export function townToken(townId) {
  const token = [...Buffer.from(townId)].map((byte) => {
    const char = String.fromCharCode(byte);
    return /[A-Za-z0-9_-]/.test(char) ? char : `%${byte.toString(16).toUpperCase().padStart(2, "0")}`;
  }).join("");
  return token.length <= 128 ? token : `=${createHash("sha256").update(townId).digest("hex")}`;
}

// parseCommand reads a request. It returns {} for what has no id to answer about, {command} for a
// command, and {command, problem} for one that has an id and is not a command otherwise.
export function parseCommand(text) {
  let command;
  try {
    command = JSON.parse(text);
  } catch {
    return {};
  }
  if (!/^handoff_[0-9a-f]{64}$/.test(command?.applyId)) return {};
  return { command, problem: problemOf(command) };
}

function problemOf(c) {
  const isText = (v) => typeof v === "string" && v !== "";
  if (c.schemaVersion !== "command-apply.v1") return "schemaVersion must be command-apply.v1.";
  if (!isText(c.townId) || !isText(c.actorId)) return "townId and actorId must be text.";
  if (!Object.hasOwn(TYPES, c.type)) return "type is not known.";
  if (!isText(c.args?.[TYPES[c.type]])) return `args.${TYPES[c.type]} must be text.`;
  if (!Number.isSafeInteger(c.timeoutMs)) return "timeoutMs must be an integer.";
  const after = c.expectedSnapshot;
  if (after?.townId !== c.townId || !Number.isSafeInteger(after.day) || !Array.isArray(after.projects)) {
    return "expectedSnapshot must be a snapshot of the town.";
  }
  return undefined;
}

// The answers. Applied and refused are definite; busy is "not begun", in-progress is "begun".
const answer = (applyId, status, more) => ({ schemaVersion: "command-applied.v1", applyId, status, ...more });
export const applied = (id) => answer(id, "applied");
export const refused = (id, reasonCode, message, retryable = false) =>
  answer(id, "refused", { reasonCode, message, retryable });
export const busy = (id, retryAfterMs) => answer(id, "busy", { retryAfterMs });
export const inProgress = (id, retryAfterMs) => answer(id, "in-progress", { retryAfterMs });
