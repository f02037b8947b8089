import assert from "node:assert/strict";
import { execFileSync } from "node:child_process";
import { cpSync, mkdtempSync, readFileSync, rmSync, symlinkSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { test } from "node:test";

const here = new URL("..", import.meta.url).pathname;

/** The n-th code block of a language in the README. @param {string} language */
const block = (language) =>
  readFileSync(join(here, "README.md"), "utf8").split("```" + language + "\n")[1].split("```")[0];

test("TypeScript has the types of the package, with the settings of the README", (t) => {
  const dir = mkdtempSync(join(tmpdir(), "worldengine-types-"));
  t.after(() => rmSync(dir, { recursive: true, force: true }));
  const modules = join(here, "node_modules");
  const [{ files }] = JSON.parse(execFileSync("npm", ["pack", "--dry-run", "--json"],
    { cwd: here, encoding: "utf8", stdio: ["ignore", "pipe", "ignore"] }));
  const names = files.map((/** @type {{ path: string }} */ { path }) => path);
  assert.ok(names.includes("README.md") && names.includes("worldengine-stdio.mjs"));
  for (const path of names) cpSync(join(here, path), join(dir, "node_modules/worldengine-client", path));
  symlinkSync(join(modules, "@nats-io"), join(dir, "node_modules/@nats-io"));
  writeFileSync(join(dir, "package.json"), `{"type":"module"}`);
  const settings = JSON.parse(block("json"));
  Object.assign(settings.compilerOptions,
    { noEmit: true, skipLibCheck: true, target: "es2022", types: ["node"], typeRoots: [join(modules, "@types")] });
  writeFileSync(join(dir, "tsconfig.json"), JSON.stringify(settings));
  const check = () => execFileSync("node", [join(modules, "typescript/bin/tsc"), "-p", dir], { encoding: "utf8" });
  writeFileSync(join(dir, "agent.ts"), block("js"));
  check();
  writeFileSync(join(dir, "agent.ts"), `${block("js")}\nexport const day: string = town.snapshot.day;\n`);
  assert.throws(check, (/** @type {any} */ error) => /'number' is not assignable to type 'string'/.test(error.stdout));
});
