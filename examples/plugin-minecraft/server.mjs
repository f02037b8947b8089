// A Minecraft server with the plugin: node server.mjs [config.json]. It prints a line "listening <port>"
// when players can join; its log goes to stderr.
import { createRequire } from "node:module";
import { resolve } from "node:path";
import { fileURLToPath } from "node:url";
import { loadConfig } from "./config.mjs";

console.log = console.error; // what flying-squid logs with
const { createMCServer } = createRequire(import.meta.url)("flying-squid");

const configFile = resolve(process.argv[2] ?? "config.json");
const { game } = loadConfig(configFile);
const plugin = fileURLToPath(new URL("plugin.cjs", import.meta.url));
const serv = createMCServer({
  ...game,
  motd: "worldengine",
  "online-mode": false, // names are not checked: for this machine and tests alone
  "everybody-op": false, // left out, everybody is: flying-squid takes "not said" for yes
  "max-players": 10,
  "max-entities": 100, // players count; one more ends the process
  "view-distance": 4,
  gameMode: 1,
  difficulty: 0,
  generation: { name: "superflat", options: {} },
  worldFolder: undefined, // every start is a new world
  logging: false,
  debug: () => {}, // without it flying-squid adds handlers to the process with every player
  "player-list-text": { header: { text: "worldengine" }, footer: { text: "" } },
  plugins: { [plugin]: { configFile } },
});
// The line starts with a line feed, for the game's console writes a prompt without one.
serv.on("ready", () => process.stdout.write(`\nlistening ${serv.listeningPort}\n`));
