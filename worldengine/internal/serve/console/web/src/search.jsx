import { useRef, useState } from "preact/hooks";
import { loadMore } from "./later.jsx";
import { ask } from "./session.js";

/** The pause in typing after which something is suggested, in milliseconds. */
const pause = 150;

/** Finds a town, a run, a key, a hash, an actor or a reason code. It suggests pages, towns and runs while one types. */
export function Search() {
  const [text, setText] = useState("");
  const [why, setWhy] = useState("");
  const [busy, setBusy] = useState(false);
  const [found, setFound] = useState([]);
  const [at, setAt] = useState(-1); // which suggestion is chosen
  const timer = useRef(null);
  const asked = useRef(0);
  const close = () => { clearTimeout(timer.current); asked.current++; setFound([]); setAt(-1); };
  const type = (value) => {
    close();
    setText(value);
    setWhy("");
    const wanted = value.trim();
    if (!wanted) return;
    const mine = asked.current;
    timer.current = setTimeout(async () => {
      const all = await (await loadMore()).suggest(wanted, ask).catch(() => []);
      if (mine === asked.current) setFound(all);
    }, pause);
  };
  const leave = () => { close(); setText(""); document.activeElement?.blur(); };
  const submit = async (e) => {
    e.preventDefault();
    const wanted = text.trim();
    if (at >= 0) {
      location.hash = found[at].href;
      leave();
      return;
    }
    if (!wanted || busy) return;
    close();
    setWhy("");
    setBusy(true);
    try {
      await (await loadMore()).find(wanted);
      leave();
    } catch (error) {
      setWhy(error.message);
    }
    setBusy(false);
  };
  const keys = (e) => {
    const by = { ArrowDown: 1, ArrowUp: -1 }[e.key];
    if (!by || found.length === 0) return;
    e.preventDefault();
    setAt((at + 1 + by + found.length + 1) % (found.length + 1) - 1); // -1 is the text itself
  };
  const open = found.length > 0;
  return (
    <form class="search" role="search" onSubmit={submit} aria-busy={busy}>
      <label class="unseen" for="search">Find a town, run, key, hash, actor or reason</label>
      <input id="search" type="search" placeholder="Town, run, key, hash, actor, reason  /" value={text} autocomplete="off" aria-describedby="search-why"
        role="combobox" aria-expanded={open} aria-controls="suggested" aria-autocomplete="list" aria-activedescendant={at >= 0 ? `suggested-${at}` : undefined}
        onInput={(e) => type(e.target.value)} onKeyDown={keys} onBlur={close} />
      <div id="suggested" role="listbox" aria-label="Suggestions" hidden={!open}>
        {found.map((f, i) => (
          <a key={f.href} id={`suggested-${i}`} role="option" aria-selected={i === at} tabIndex={-1} href={f.href} onPointerDown={(e) => e.preventDefault()} onClick={leave}>
            <span class="soft">{f.kind}</span> <bdi>{f.name}</bdi>
          </a>
        ))}
      </div>
      <span id="search-why" role="status">{busy ? "Searching…" : why}</span>
    </form>
  );
}
