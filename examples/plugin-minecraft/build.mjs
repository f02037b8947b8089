// What a command looks like in the game: a pure function of the command and of the town's place. The
// same command always gives the same blocks at the same places, so to place them again is harmless.
import { createHash } from "node:crypto";

// A project's wall has 100 blocks, so that one stands for one percent of progress. With 16 lanes every
// wall of a town is within what a player at its corner is sent.
export const WALL = { length: 20, height: 5, block: "stone_bricks", lanes: 16, spacing: 2 };
// A town's salvage lies in a row of chests.
export const YARD = { length: 16, spacing: 2, blocks: ["chest", "trapped_chest"] };

const TALK = { "morale-boost": "Chin up, neighbours: we stand together!", casual: "Nice weather today." };

// plan returns {steps}, each a {block, x, y, z} or a {say}, or {reasonCode, message}: why not.
export function plan(command, place) {
  const town = cleanText(command.townId, 40);
  switch (command.type) {
    case "PROJECT_ADVANCE": {
      const project = command.expectedSnapshot.projects.find((p) => p.id === command.args.projectId);
      if (!project) return { reasonCode: "UNKNOWN_PROJECT", message: "The town has no such project." };
      return { steps: wall(place, project.id, project.progress) };
    }
    case "SALVAGE_PLAN":
      return { steps: [salvage(place, command.expectedSnapshot.day)] };
    case "MAYOR_ACCEPT_MISSION": {
      const title = command.expectedSnapshot.mission?.title ?? command.args.missionId;
      return { steps: [{ say: `[${town}] The mayor accepts a mission: ${cleanText(title, 80)}` }] };
    }
    case "MISSION_COMPLETE":
    case "MISSION_FAIL": { // the snapshot has no mission any more, and so no title
      const end = command.type === "MISSION_COMPLETE" ? "is complete" : "has failed";
      return { steps: [{ say: `[${town}] The mission ${end}: ${cleanText(command.args.missionId, 80)}` }] };
    }
    case "TOWNSFOLK_TALK": {
      const { talkType } = command.args;
      const line = Object.hasOwn(TALK, talkType) && TALK[talkType];
      if (!line) return { reasonCode: "UNKNOWN_TALK", message: "Nobody knows what to say about that." };
      return { steps: [{ say: `[${town}] ${cleanText(command.actorId, 40)}: ${line}` }] };
    }
    default:
      return { reasonCode: "UNKNOWN_COMMAND", message: "This server knows no such command." };
  }
}

// wall returns the blocks of a project's wall at some progress, from the ground up. The lane follows
// from the project's id alone; two projects may get the same one, and a real server would keep a table
// of building sites.
export function wall(place, projectId, progress) {
  const lane = createHash("sha256").update(projectId).digest().readUInt32BE() % WALL.lanes;
  // Progress is decimal: 0.29 * 100 is less than 29 in binary.
  const count = Math.floor(Math.min(Math.max(progress, 0), 1) * WALL.length * WALL.height + 1e-6);
  return Array.from({ length: count }, (_, i) => ({
    block: WALL.block,
    x: place.x + (i % WALL.length),
    y: place.y + Math.floor(i / WALL.length),
    z: place.z + WALL.spacing * (lane + 1),
  }));
}

// salvage returns the chest of a day. The days go along the row, and every lap changes the kind, so a
// later day always shows something new.
export function salvage(place, day) {
  return {
    block: YARD.blocks[Math.floor(day / YARD.length) % YARD.blocks.length],
    x: place.x + YARD.spacing * (day % YARD.length),
    y: place.y,
    z: place.z,
  };
}

// cleanText makes text of agents fit for chat: one line, no control, format or private characters, no
// section sign (the game's own formatting), and no more than max characters.
export function cleanText(text, max) {
  const clean = text.replace(/[\p{Z}\t-\r]+/gu, " ").replace(/[\p{C}§]/gu, "").trim();
  const chars = [...clean];
  return chars.length <= max ? clean : `${chars.slice(0, max - 1).join("")}…`;
}
