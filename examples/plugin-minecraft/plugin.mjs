// The plugin: puts the parts together and gives operators /worldengine.
import { Applier } from "./applier.mjs";
import { loadConfig } from "./config.mjs";
import { Link } from "./link.mjs";
import { Memory } from "./memory.mjs";
import { openWorld } from "./world.mjs";

// startPlugin starts serving when the game is ready. The game waits for nothing of it.
export async function startPlugin(serv, { configFile }) {
  const log = (message) => serv.info(`[worldengine] ${message}`);
  let config = loadConfig(configFile);
  const memory = await Memory.open(config.stateFile, config.limits.remember);
  if (!serv.isReady) await new Promise((resolve) => serv.once("ready", resolve));

  const applier = new Applier({ memory, world: openWorld(serv), config, log });
  const openLink = () => new Link(config, { onRequest: (text, reply) => applier.offer(text, reply), log }).open();
  let link = openLink();
  serv.on("tick", () => applier.tick());

  const status = () => {
    const { applied, refused, repeated, busy } = applier.counts;
    return `NATS ${link.state}; in hand ${applier.waiting} of ${config.limits.queue}; since the start ` +
      `${applied} applied, ${refused} refused, ${repeated} repeated, ${busy} busy; ` +
      `${memory.size} remembered, ${memory.unfinished} of them unfinished`;
  };
  // reload takes over everything but the state file and the game, which need a restart.
  const reload = async () => {
    const { stateFile } = config;
    config = { ...loadConfig(configFile), stateFile };
    applier.configure(config);
    await link.close();
    link = openLink();
    return "reloaded";
  };
  serv.commands.add({
    base: "worldengine",
    info: "to see or reload the link to the world engine",
    usage: "/worldengine status|reload",
    op: true,
    parse: (text) => (["status", "reload"].includes(text) ? text : false),
    async action(verb, { player }) {
      // flying-squid takes a player whose op is undefined for an operator, so it is asked here too.
      if (player && player.op !== true) return "You do not have permission to use this command";
      try {
        return verb === "status" ? status() : await reload();
      } catch (err) {
        return `not reloaded: ${err.message}`;
      }
    },
  });
  log(`serves ${Object.keys(config.towns).length} towns of the world ${config.world}`);
}
