import { useState } from "preact/hooks";
import { loadMore } from "./later.jsx";

/** Finds a town, a run, a key, a hash, an actor or a reason code. */
export function Search() {
  const [text, setText] = useState("");
  const [why, setWhy] = useState("");
  const [busy, setBusy] = useState(false);
  const submit = async (e) => {
    e.preventDefault();
    const asked = text.trim();
    if (!asked || busy) return;
    setWhy("");
    setBusy(true);
    try {
      await (await loadMore()).find(asked);
      setText("");
      document.activeElement?.blur();
    } catch (error) {
      setWhy(error.message);
    }
    setBusy(false);
  };
  return (
    <form class="search" role="search" onSubmit={submit} aria-busy={busy}>
      <label class="unseen" for="search">Find a town, run, key, hash, actor or reason</label>
      <input id="search" type="search" placeholder="Town, run, key, hash, actor, reason  /" value={text} aria-describedby="search-why" onInput={(e) => { setText(e.target.value); setWhy(""); }} />
      <span id="search-why" role="status">{busy ? "Searching…" : why}</span>
    </form>
  );
}
