import { connect, environment, makeHandoff } from "worldengine-client";

// The server and the credentials are those of the NATS command line: NATS_URL, NATS_USER, …
const engine = await connect({ servers: "127.0.0.1:4222", ...environment() });

// 1. Look at the town.
const town = await engine.town("town-threatened");

// 2. Propose. An agent with a library of its own makes the whole handoff there.
const handoff = await makeHandoff(town, {
  type: "PROJECT_ADVANCE", args: { projectId: "wall-perimeter" }, actorId: "mayor-1",
  priority: 0.8, reason: "The wall is low.", reasonTags: ["threat"],
  preconditions: [{ kind: "project_exists", targetId: "wall-perimeter" }],
});

// 3. Hand it off, and see what became of it.
const { result, runId } = await engine.send(handoff);
console.log(result.status, result.reasonCode, result.resultId);
for await (const event of engine.events({ runId })) {
  console.log(event.runSeq, event.eventType, event.stepId ?? "");
}
await engine.close();
