import { connect } from "@nats-io/transport-node";
import { createHash } from "node:crypto";

const nc = await connect({ servers: process.env.NATS_URL ?? "127.0.0.1:4222" });
const ask = async (verb, body) => {
  const reply = await nc.request(`worldengine.v1.main.${verb}`, JSON.stringify(body), { timeout: 5000 });
  const code = reply.headers?.get("Nats-Service-Error-Code");
  if (code) throw new Error(`${code} ${reply.string()}`);
  return reply;
};

// 1. Look at the town.
const town = (await ask("town.get", { townId: "town-threatened" })).json();

// 2. Propose. The reference agents' library makes this part; here it is by hand.
const canonical = (v) => Array.isArray(v) ? `[${v.map(canonical)}]`
  : v && typeof v === "object" ? `{${Object.keys(v).sort().map((k) => `${JSON.stringify(k)}:${canonical(v[k])}`)}}`
  : JSON.stringify(v);
const hash = (v) => createHash("sha256").update(canonical(v)).digest("hex");
const { snapshotHash, decisionEpoch } = town;
const proposal = {
  schemaVersion: "proposal.v2", snapshotHash, decisionEpoch, type: "PROJECT_ADVANCE",
  actorId: "mayor-1", townId: town.townId, priority: 0.8, reason: "The wall is low.",
  reasonTags: ["threat"], args: { projectId: "wall-perimeter" },
  preconditions: [{ kind: "project_exists", targetId: "wall-perimeter" }],
};
proposal.proposalId = `proposal_${hash(proposal)}`;
const command = `project advance ${town.townId} wall-perimeter`;
const handoff = {
  schemaVersion: "execution-handoff.v1", advisory: true, proposalId: proposal.proposalId,
  handoffId: `handoff_${hash({ proposalId: proposal.proposalId, command })}`,
  idempotencyKey: proposal.proposalId, snapshotHash, decisionEpoch, proposal, command,
  executionRequirements: {
    expectedSnapshotHash: snapshotHash, expectedDecisionEpoch: decisionEpoch,
    preconditions: proposal.preconditions,
  },
};

// 3. Hand it off, and see what became of it.
const reply = await ask("handoff", handoff);
const result = reply.json();
console.log(result.status, result.reasonCode, result.resultId);
const run = (await ask("run.events", { runId: reply.headers.get("Run-Id") })).json();
for (const e of run.events) console.log(e.runSeq, e.eventType, e.stepId ?? "");
await nc.drain();
