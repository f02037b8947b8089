// The steps of a plan in flying-squid's world. Everything here runs on the game's thread: in Node there
// is but one. A plugin of Bukkit or Paper would hop to the main thread here.
import { Vec3 } from "vec3";

export function openWorld(serv) {
  const { overworld, registry } = serv;
  const stateOf = (name) => {
    const block = registry.blocksByName[name];
    if (!block) throw new Error(`this version of the game has no block ${name}`);
    return block.defaultState;
  };
  return {
    // missing looks at the world: a block that stands already needs no step. So a command that was
    // cut off is completed, and one that was done changes nothing. Chat leaves nothing to look at: cut
    // off at the wrong moment, a line is said again rather than not at all.
    async missing(steps) {
      const wanted = await Promise.all(steps.map(async (step) => step.say !== undefined ||
        await overworld.getBlockStateId(new Vec3(step.x, step.y, step.z)) !== stateOf(step.block)));
      return steps.filter((_, i) => wanted[i]);
    },
    // perform takes a step. Chat goes out as data, not as a string that the game would look for colours
    // in, and never as a command.
    async perform({ say, block, x, y, z }) {
      if (say !== undefined) serv.broadcast({ text: say });
      else await serv.setBlock(overworld, new Vec3(x, y, z), stateOf(block));
    },
  };
}
