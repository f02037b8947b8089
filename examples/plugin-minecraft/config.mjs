// The settings: a JSON file in which lines that start with // are comments. See config.example.json.
import { readFileSync } from "node:fs";
import { dirname, resolve } from "node:path";
import { TYPES } from "./protocol.mjs";

const DEFAULTS = {
  nats: { url: "nats://127.0.0.1:4222" },
  world: "main",
  towns: {},
  allow: Object.keys(TYPES),
  limits: { queue: 64, commandsPerTick: 4, blocksPerTick: 32, remember: 10_000 },
  stateFile: "state/applied.jsonl",
  game: { host: "127.0.0.1", port: 25565, version: "1.20.2" },
};
const ENVIRONMENT = ["NATS_USER", "NATS_PASSWORD", "NATS_TOKEN", "NATS_CREDS", "NATS_CA", "NATS_CERT", "NATS_KEY"];

// loadConfig reads and checks the file at path. Secrets come from the environment alone.
export function loadConfig(path, env = process.env) {
  const config = parseConfig(readFileSync(path, "utf8"));
  config.stateFile = resolve(dirname(path), config.stateFile);
  config.nats.url = env.NATS_URL || config.nats.url;
  config.nats.env = Object.fromEntries(ENVIRONMENT.map((name) => [name, env[name]]));
  return config;
}

// parseConfig fills in the defaults, and throws an Error that names what is wrong.
export function parseConfig(text) {
  const given = parseJson(text.replace(/^\s*\/\/.*$/gm, ""));
  const config = { ...DEFAULTS, ...given };
  onlyKnown("", given, DEFAULTS);
  for (const section of ["nats", "limits", "game"]) {
    onlyKnown(`${section}.`, given[section] ?? {}, DEFAULTS[section]);
    config[section] = { ...DEFAULTS[section], ...given[section] };
  }
  need(/^[A-Za-z0-9_-]{1,64}$/.test(config.world), "world must be 1 to 64 of A-Z a-z 0-9 _ -");
  need(Object.keys(config.towns).length > 0, "towns must name a town at least");
  for (const [id, place] of Object.entries(config.towns)) {
    need([place?.x, place?.y, place?.z].every(Number.isInteger), `towns: ${id} needs whole numbers x, y and z`);
  }
  need(Array.isArray(config.allow), "allow must be a list");
  for (const type of config.allow) need(Object.hasOwn(TYPES, type), `allow: ${type} is not known`);
  for (const [name, value] of Object.entries(config.limits)) {
    need(Number.isInteger(value) && value > 0, `limits.${name} must be a whole number above 0`);
  }
  return config;
}

function parseJson(text) {
  try {
    return JSON.parse(text);
  } catch (err) {
    throw new Error(`config: the file is no JSON: ${err.message}`);
  }
}

function onlyKnown(prefix, given, known) {
  for (const name of Object.keys(given)) need(Object.hasOwn(known, name), `${prefix}${name} is not known`);
}

function need(condition, message) {
  if (!condition) throw new Error(`config: ${message}`);
}
