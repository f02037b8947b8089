import { loadMore } from "./later.jsx";

const typing = (el) => el.matches("input, textarea, select, [contenteditable]");

/** Shows the keys and the words. */
export const help = async () => (await loadMore()).help();

/** Keys of every page: "/" searches, j and k go through the rows, Esc leaves a field, "?" shows them. */
addEventListener("keydown", (e) => {
  if (e.ctrlKey || e.metaKey || e.altKey || document.querySelector("dialog[open]")) return;
  if (e.key === "Escape" && typing(e.target)) {
    e.target.blur();
  } else if (typing(e.target)) {
    return;
  } else if (e.key === "/") {
    e.preventDefault();
    document.getElementById("search")?.focus();
  } else if (e.key === "?") {
    help();
  } else if (e.key === "j" || e.key === "k") {
    const rows = [...document.querySelectorAll("[data-row]")];
    const at = rows.indexOf(document.activeElement);
    const next = e.key === "j" ? at + 1 : Math.max(at, 1) - 1;
    rows[Math.min(next, rows.length - 1)]?.focus();
  }
});
