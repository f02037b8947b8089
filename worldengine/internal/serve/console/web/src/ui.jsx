import { Component } from "preact";
import { useEffect, useRef } from "preact/hooks";
import { session } from "./session.js";
import { useStore } from "./store.js";
import { clock, visible } from "./text.jsx";

const unreadable = (error) => ({
  name: "UNREADABLE_ANSWER", message: `What the server answered is not what it should be (${error.message}). The other pages go on.`,
});

/** What went wrong, and what to do. */
export function Trouble({ error, retry }) {
  if (!error) return null;
  if (error instanceof TypeError) return <Trouble error={unreadable(error)} retry={retry} />; // an answer of another shape
  const advice = {
    TIMEOUT: "The server did not answer in time; it may be busy or away.",
    NO_RESPONDERS: "No engine serves this world now.",
    PERMISSION_DENIED: "This user has no right to ask that.",
    FORBIDDEN: "This user has no right to that.",
  }[error.code];
  return (
    <div class="trouble" role="alert">
      <strong>{visible(error.code ?? error.name)}</strong> {advice ?? visible(error.message)}
      {(error.details ?? []).map((d) => (
        <div key={d.path}><code>{visible(d.path || "/")}</code> {visible(d.message)}</div>
      ))}
      {retry && <button type="button" onClick={retry}>Try again</button>}
    </div>
  );
}

/** Says what went wrong in place of a page that cannot be shown: an answer that is not what it should be. Another
    path is another page. */
export class Boundary extends Component {
  state = { error: null };

  static getDerivedStateFromError(error) { return { error }; }

  componentDidUpdate({ path }) {
    if (this.state.error && path !== this.props.path) this.setState({ error: null });
  }

  render({ children }, { error }) {
    if (!error) return children;
    return (
      <>
        <Heading title="This page cannot be shown" />
        <Trouble error={unreadable(error)} retry={() => this.setState({ error: null })} />
      </>
    );
  }
}

/** A page's title, what belongs to it, and what can be done. */
export function Heading({ title, children }) {
  return <div class="heading"><h1>{title}</h1><div class="actions">{children}</div></div>;
}

/** Stands for what a load has asked for, until it is there. It appears only where that takes a moment. */
export function Asking({ of: { data, error, loading } }) {
  return loading && !data && !error ? <p class="soft asking" role="status">Asking…</p> : null;
}

/** A filter with some values, each with its text. */
export function Select({ label, value, of, none = "any", onChange }) {
  return (
    <label class="filter">{label}{" "}
      <select value={value ?? ""} onChange={(e) => onChange(e.target.value)}>
        <option value="">{none}</option>
        {Object.entries(of).map(([v, text]) => <option key={v} value={v}>{text}</option>)}
      </select>
    </label>
  );
}

export function Empty({ children }) { return <div class="empty">{children}</div>; }

/** A button that opens what belongs to it, which closes with Escape, and when the reader goes elsewhere. */
export function Menu({ label, title, of = "button", kind = "", children }) {
  const ref = useRef(null);
  const close = () => { if (ref.current) ref.current.open = false; };
  const leave = (e) => { if (e.relatedTarget && !ref.current.contains(e.relatedTarget)) close(); };
  useEffect(() => {
    const press = (e) => { if (!ref.current.contains(e.target)) close(); };
    addEventListener("pointerdown", press);
    addEventListener("hashchange", close);
    return () => { removeEventListener("pointerdown", press); removeEventListener("hashchange", close); };
  }, []);
  const escape = (e) => { if (e.key === "Escape") { close(); ref.current.querySelector("summary").focus(); } };
  return (
    <details ref={ref} class={`menu ${kind}`} onFocusOut={leave} onKeyDown={escape}>
      <summary class={of} title={title}>{label}</summary>
      <div class="open">{children}</div>
    </details>
  );
}

/** Says whether what is shown is true now, and, opened, what of it comes by itself and what is asked for. */
export function Link() {
  const { link, since, deaf } = useStore(session);
  const at = clock(since);
  const text = {
    live: deaf ? "NOT LIVE" : "LIVE", reconnecting: "RECONNECTING", stale: `STALE since ${at}`,
  }[link];
  const why = {
    live: deaf ? `The page does not hear what happens: ${deaf}. It tries again; reload to see what is new.`
      : `Connected since ${at}. Runs, puts and patches of towns, and alerts appear as they happen; the page asks for the state of the world by time.`,
    reconnecting: `The connection was lost at ${at}.`,
    stale: "What you see is as it was then. The page goes on trying to reconnect.",
  }[link];
  return (
    <Menu kind="fresh" of={`link ${deaf ? "stale" : link}`} title={why} label={<span role="status">{text}</span>}><p>{why}</p></Menu>
  );
}
