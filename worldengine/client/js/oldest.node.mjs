// Refuses a Node that is too old, before anything fails in it for a reason that is hard to see.
import process from "node:process";

const oldest = 20; // CI tries it; package.json says 22, since a dependency does
if (Number.parseInt(process.versions.node) < oldest) {
  throw new Error(`worldengine-client needs Node ${oldest} or later, better 22, but this is Node ` +
    `${process.versions.node}: install a newer one, or run "npx --package=node@22 -c 'node …'"`);
}
