import assert from "node:assert/strict";
import { readFileSync } from "node:fs";
import test from "node:test";
import { loadConfig, parseConfig } from "../config.mjs";

const example = new URL("../config.example.json", import.meta.url).pathname;
const town = '"towns":{"a":{"x":1,"y":2,"z":3}}';

test("the example says the defaults", () => {
  assert.deepEqual({ ...parseConfig(readFileSync(example, "utf8")), towns: 0 }, { ...parseConfig(`{${town}}`), towns: 0 });
});

test("the environment has the secrets, and wins with the URL", () => {
  const config = loadConfig(example, { NATS_URL: "tls://n:1", NATS_USER: "u", NATS_PASSWORD: "p" });
  assert.equal(config.nats.url, "tls://n:1");
  assert.equal(config.nats.env.NATS_PASSWORD, "p");
  assert.ok(config.stateFile.endsWith("/plugin-minecraft/state/applied.jsonl"));
  assert.equal(loadConfig(example, {}).nats.url, "nats://127.0.0.1:4222");
});

test("a mistake is named", () => {
  for (const [text, message] of [
    ["{}", /towns/], [`{${town},"worlds":1}`, /worlds is not known/], [`{${town},"world":"a.b"}`, /world must/],
    [`{${town},"limits":{"queue":0}}`, /limits\.queue/], [`{${town},"limits":{"que":1}}`, /limits\.que is/],
    [`{${town},"allow":["STOP"]}`, /STOP/], ['{"towns":{"a":{"x":1}}}', /towns: a/], ["{", /^Error: config: the file is no JSON: /],
  ]) assert.throws(() => parseConfig(text), message);
});
