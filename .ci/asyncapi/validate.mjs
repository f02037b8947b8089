// Validates an AsyncAPI document: an error or a warning of the parser fails.
import { readFileSync } from "node:fs";
import { Parser } from "@asyncapi/parser";

const { document, diagnostics } = await new Parser().parse(readFileSync(process.argv[2], "utf8"));
for (const { code, path, message, severity } of diagnostics) {
  console.log(`${["error", "warning", "information", "hint"][severity]} ${code} /${path.join("/")}: ${message}`);
}
if (!document || diagnostics.some(({ severity }) => severity < 2)) process.exit(1);
console.log(`AsyncAPI ${document.version()}: ${document.operations().all().length} operations, ` +
  `${document.allMessages().all().length} messages`);
