import { mkdtempSync, rmSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { Memory } from "../memory.mjs";

export const idOf = (n) => `handoff_${String(n).padStart(64, "0")}`;

// command is a request as the engine sends it, as far as a plugin reads it.
export function command(n, change = {}) {
  return {
    schemaVersion: "command-apply.v1", applyId: idOf(n), townId: "a", actorId: "ada",
    type: "PROJECT_ADVANCE", args: { projectId: "wall" }, timeoutMs: 10_000,
    expectedSnapshot: { townId: change.townId ?? "a", day: 4, mission: null, projects: [{ id: "wall", progress: 0.1 }] },
    ...change,
  };
}

export function temporaryFile(t) {
  const folder = mkdtempSync(join(tmpdir(), "plugin-"));
  t.after(() => rmSync(folder, { recursive: true }));
  return join(folder, "state", "applied.jsonl");
}

// remember opens a memory, and closes it with the test.
export async function remember(t, path, limit) {
  const memory = await Memory.open(path, limit);
  t.after(() => memory.close());
  return memory;
}
