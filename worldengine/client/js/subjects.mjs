import { sha256 } from "./canonical.mjs";

/**
 * Returns the subject of a verb. Verbs about worlds, such as worlds.list, are asked of no world.
 * @param {string} world @param {string} verb
 */
export const verbSubject = (world, verb) =>
  verb.startsWith("worlds.") ? `worldengine.v1.=${verb}` : `worldengine.v1.${world}.${verb}`;

/**
 * Returns the token of a town id in a subject: its UTF-8, with every byte except A-Z a-z 0-9 _ -
 * percent-encoded. If that has more than 128 bytes, it is `=` and the SHA-256 of the town id.
 * @param {string} townId
 * @returns {Promise<string>}
 */
export async function townToken(townId) {
  const token = Array.from(new TextEncoder().encode(townId), (byte) => {
    const char = String.fromCharCode(byte);
    return /[A-Za-z0-9_-]/.test(char) ? char : `%${byte.toString(16).toUpperCase().padStart(2, "0")}`;
  }).join("");
  return token.length <= 128 ? token : `=${await sha256(townId)}`;
}
