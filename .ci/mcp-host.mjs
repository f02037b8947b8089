// A host of a language model that reads the configuration of docs/agents.md: it begins a session by the URL and the
// header there, looks at a town, proposes, and reads the town's memory. It needs Node alone.
import { readFileSync } from "node:fs";

const { url, headers } = JSON.parse(readFileSync(process.argv[2], "utf8")).mcpServers.world;
let session = {}, id = 0;

async function ask(method, params, notification) {
  const answer = await fetch(url, {
    method: "POST",
    headers: { ...headers, ...session, "Content-Type": "application/json", Accept: "application/json, text/event-stream" },
    body: JSON.stringify({ jsonrpc: "2.0", ...(notification ? {} : { id: ++id }), method, params }),
  });
  const text = await answer.text();
  if (!answer.ok) throw new Error(`${method}: ${answer.status} ${text}`);
  if (method === "initialize") session = { "Mcp-Session-Id": answer.headers.get("Mcp-Session-Id") };
  const { result, error } = notification ? {} : JSON.parse(text);
  if (error || result?.isError) throw new Error(`${method}: ${text}`);
  return result;
}
const call = async (name, args) => JSON.parse((await ask("tools/call", { name, arguments: args })).content[0].text);

await ask("initialize", { protocolVersion: "2025-11-25", capabilities: {}, clientInfo: { name: "ci", version: "1" } });
await ask("notifications/initialized", {}, true);
const townId = (await call("list_towns", { text: "threatened" })).towns[0].townId;
const { result } = await call("propose",
  { townId, type: "PROJECT_ADVANCE", argument: "wall-perimeter", reason: "The wall is low." });
console.log(result.status, result.reasonCode);
const { messages } = await ask("prompts/get", { name: "town_memory", arguments: { townId } });
if (!messages[0].content.text.includes('mayor-1 advanced the Perimeter Wall. It was made because: "The wall is low."'))
  throw new Error(messages[0].content.text);
const events = (await call("read_run", { runId: (await ask("tools/call", { name: "propose", arguments:
  { townId, type: "PROJECT_ADVANCE", argument: "wall-perimeter", reason: "Still low." } })).content[0].text
  .match(/"runId":"([^"]+)"/)[1] })).events;
console.log(events.length, events.at(-1).eventType);
