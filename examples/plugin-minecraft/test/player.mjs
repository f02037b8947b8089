// A player who prints a line of JSON for each block that changes, {block, x, y, z}, and for each line of chat, {chat}:
//
//   node player.mjs PORT VERSION
import { createRequire } from "node:module";

const require = createRequire(createRequire(import.meta.url).resolve("flying-squid"));
const { createClient } = require("minecraft-protocol");

const [port, version] = process.argv.slice(2);
const { blocksByStateId } = require("minecraft-data")(version);
const client = createClient({ host: "127.0.0.1", port: Number(port), username: "Watcher", version, auth: "offline" });
const see = (sighting) => process.stdout.write(`${JSON.stringify(sighting)}\n`);

client.on("position", ({ teleportId }) => client.write("teleport_confirm", { teleportId }));
client.on("chunk_batch_finished", () => client.write("chunk_batch_received", { chunksPerTick: 64 }));
client.on("block_change", ({ location, type }) => see({ block: blocksByStateId[type].name, ...location }));
client.on("system_chat", ({ content }) => see({ chat: textOf(content) }));
for (const end of ["end", "error", "disconnect", "kick_disconnect"]) {
  client.on(end, (why) => {
    console.error(`the player has left the game: ${end}: ${JSON.stringify(why?.message ?? why)}`);
    process.exit(1);
  });
}

/** Returns the text of a chat component in NBT: a string, or a compound with text and extra. */
function textOf({ type, value }) {
  if (type === "string") return value;
  const extra = value.extra?.value?.value ?? [];
  return (value.text?.value ?? "") + extra.map((part) => textOf({ type: "compound", value: part })).join("");
}
