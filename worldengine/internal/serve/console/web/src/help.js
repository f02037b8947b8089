import { words } from "./words.gen.js";

/** Shows the keys, and the words that the pages use. */
export function help() {
  const dialog = document.createElement("dialog");
  const list = words.map(([word, meaning]) => `<dt>${word}</dt><dd>${meaning}</dd>`).join("");
  dialog.innerHTML = `<form method="dialog"><h2>Keys</h2><dl class="keys"><dt>/</dt><dd>search</dd><dt>j k</dt><dd>the next or
    previous row</dd><dt>Enter</dt><dd>open a row</dd><dt>← →</dt><dd>the values of a graph that has the focus</dd><dt>Esc</dt><dd>leave a field,
    or close what is open</dd><dt>?</dt><dd>this help</dd></dl><h2>Words</h2><dl class="keys">${list}</dl>
    <div class="actions"><button class="primary">Close</button></div></form>`;
  dialog.setAttribute("aria-label", "Keys and help");
  dialog.addEventListener("close", () => dialog.remove());
  document.body.append(dialog);
  dialog.showModal();
}
