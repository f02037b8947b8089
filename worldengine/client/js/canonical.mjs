/**
 * Returns the canonical JSON (RFC 8785) of a value: no white space, members sorted by the UTF-16
 * code units of their names. A member that is undefined is left out.
 * @param {unknown} value
 * @returns {string}
 */
export function canonicalJson(value) {
  if (Array.isArray(value)) return `[${value.map(canonicalJson).join(",")}]`;
  if (value === null || typeof value !== "object") return JSON.stringify(value);
  const object = /** @type {Record<string, unknown>} */ (value);
  const members = Object.keys(object).sort().filter((name) => object[name] !== undefined)
    .map((name) => `${JSON.stringify(name)}:${canonicalJson(object[name])}`);
  return `{${members.join(",")}}`;
}

/**
 * Returns the lower-case hex SHA-256 of a text in UTF-8. In a browser it needs https or localhost.
 * @param {string} text
 * @returns {Promise<string>}
 */
export async function sha256(text) {
  const digest = await crypto.subtle.digest("SHA-256", new TextEncoder().encode(text));
  return Array.from(new Uint8Array(digest), (byte) => byte.toString(16).padStart(2, "0")).join("");
}

/**
 * Returns the contract's hash of a value: SHA-256 of its canonical JSON.
 * @param {unknown} value
 */
export const hash = (value) => sha256(canonicalJson(value));
