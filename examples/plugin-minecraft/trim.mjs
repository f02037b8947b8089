// Deletes the data of Bedrock, two thirds of the install: this server speaks Java's protocol. The
// folder common stays, for the library lists its versions when it is loaded.
import { readdirSync, rmSync } from "node:fs";
import { createRequire } from "node:module";
import { dirname, join } from "node:path";

const require = createRequire(createRequire(import.meta.url).resolve("flying-squid"));
const data = join(dirname(require.resolve("minecraft-data")), "minecraft-data/data/bedrock");
for (const name of readdirSync(data)) {
  if (name !== "common") rmSync(join(data, name), { recursive: true });
}
