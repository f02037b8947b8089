import assert from "node:assert/strict";
import { test } from "node:test";
import { connect } from "../index.mjs";
import { access, joined, password, serve } from "./world.mjs";

test("who is not let in, or no longer, is told so", { timeout: 120_000 }, async (t) => {
  const { file, admit } = access(t);
  admit("mayor", "other");
  const world = await serve(t, "--access", file);

  for (const who of [{}, { user: "mayor", pass: "another one" }]) {
    await assert.rejects(connect({ servers: world.url, ...who }),
      { name: "UnavailableError", code: "CONNECTION", message: /refuses the user/ });
  }
  const withSecret = connect({ servers: world.url.replace("://", "://mayor:secret@") });
  await assert.rejects(withSecret, (/** @type {Error} */ error) => !error.message.includes("secret"));

  const engine = await joined(t, world.url, { user: "mayor", pass: password });
  const pause = engine.request("control.pause", { townId: "town-quiet", actorId: "a", reason: "b" });
  await assert.rejects(pause, { code: "PERMISSION_DENIED" });
  const events = engine.events({ townId: "town-quiet" });
  const next = events.next();
  await engine.town("town-quiet");
  admit("other");
  world.signal("SIGHUP");
  await assert.rejects(next, { name: "UnavailableError", code: "CONNECTION", message: /Authorization/ });
  await assert.rejects(engine.town("town-quiet"), { code: "CONNECTION", message: /Authorization/ });
});

test("where there is no server, a client is told what to do", async () => {
  await assert.rejects(connect({ servers: "127.0.0.1:1" }),
    { code: "CONNECTION", message: /127\.0\.0\.1:1.*start handoffd/ });
  // What is wrong with the options is said before there is a connection, which would stay open.
  await assert.rejects(connect({ servers: "127.0.0.1:1", callTimeout: Number.NaN }), RangeError);
  await assert.rejects(connect({ servers: "127.0.0.1:1", world: "a.b" }), RangeError);
  if (typeof WebSocket === "undefined") {
    await assert.rejects(connect({ servers: "ws://127.0.0.1:1" }), { code: "CONNECTION", message: /no WebSocket/ });
  }
});
