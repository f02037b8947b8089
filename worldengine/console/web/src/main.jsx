import { render } from "preact";
import { useEffect, useRef, useState } from "preact/hooks";
import "./keys.js";
import { Overview } from "./pages/overview.jsx";
import { Runs } from "./pages/runs.jsx";
import { Towns } from "./pages/towns.jsx";
import { useLoad } from "./load.js";
import { go, href, route } from "./route.js";
import { ask, can, session, signIn, signOut, start } from "./session.js";
import { useStore } from "./store.js";
import { Said } from "./text.jsx";
import { Boundary, Empty, Heading, Link, Trouble } from "./ui.jsx";

/** Loads the other pages, once: what is open when the server goes away has them. */
let more = null;
const loadMore = () => {
  more ??= import("./pages/more.js").catch(() => {
    more = null;
    throw Object.assign(new Error("The server has no such page any more, or is away. Load the page again."), { name: "PAGE_MISSING" });
  });
  return more;
};

/** One of the other pages. */
function Later({ page, ...props }) {
  const { data, error, reload } = useLoad(loadMore, []);
  if (!data) return error ? <Trouble error={error} retry={reload} /> : <p class="soft">Loading…</p>;
  const Found = data[page];
  return <Found {...props} />;
}

/** The page of a path; each has a key, so that another town or run is another page. */
function Page({ path }) {
  const [area, id, sub, range] = path;
  if (!area) return <Overview />;
  if (area === "towns" && !id) return <Towns />;
  if (area === "towns" && sub === "history") return <Later page="History" key={id} townId={id} range={range} />;
  if (area === "towns") return <Later page="Town" key={id} townId={id} />;
  if (area === "runs" && !id) return <Runs />;
  if (area === "runs") return <Later page="Run" key={id} runId={id} />;
  if (area === "send") return <Later page="Send" />;
  if (area === "alerts") return <Later page="Alerts" />;
  if (area === "approvals") return <Later page="Approvals" />;
  return <><Heading title="No such page" /><Empty><a href="#/">Overview</a></Empty></>;
}

const areas = [["", "Overview"], ["towns", "Towns"], ["runs", "Runs"], ["send", "Send", "handoff"], ["approvals", "Approvals", "approval.list"], ["alerts", "Alerts", "alert.list"]];

function App() {
  const { phase, config, me, link, why } = useStore(session);
  const { path } = useStore(route);
  useEffect(() => { scrollTo({ top: 0 }); }, [path.join("/")]);
  useEffect(() => { if (phase === "ready") loadMore().catch(() => {}); }, [phase]);
  if (phase === "signin") return <SignIn why={why} world={config.world} />;
  if (phase !== "ready") return <main class="alone"><h1>World engine</h1><p role="status">{why || "Connecting…"}</p></main>;
  return (
    <>
      <a class="skip" href="#main" onClick={(e) => { e.preventDefault(); document.getElementById("main").focus(); }}>Skip to the page</a>
      <header>
        <a class="brand" href="#/"><Said text={config.world} most={24} /></a>
        <nav aria-label="Pages">
          {areas.filter(([, , verb]) => !verb || can(verb)).map(([area, name]) => (
            <a key={area} href={href(area ? [area] : [])} aria-current={(path[0] ?? "") === area ? "page" : undefined}>{name}</a>
          ))}
        </nav>
        <Search />
        <Link />
        {config.signIn && <button type="button" class="quiet" onClick={signOut} title={`${me.role}`}>Sign out {me.user}</button>}
      </header>
      <main id="main" tabIndex={-1} class={link === "stale" ? "old" : ""}><Boundary path={path.join("/")}><Page path={path} /></Boundary></main>
    </>
  );
}

function SignIn({ why, world }) {
  const [user, setUser] = useState("");
  const [pass, setPass] = useState("");
  const field = useRef(null);
  useEffect(() => field.current.focus(), []);
  return (
    <main class="alone">
      <h1>World <Said text={world} most={40} /></h1>
      <form onSubmit={(e) => { e.preventDefault(); signIn({ user, pass }); }}>
        {why && <p class="trouble" role="alert">{why}</p>}
        <label>User <input ref={field} required autocomplete="username" value={user} onInput={(e) => setUser(e.target.value)} /></label>
        <label>Password <input type="password" required autocomplete="current-password" value={pass} onInput={(e) => setPass(e.target.value)} /></label>
        <button type="submit" class="primary">Sign in</button>
        <p class="soft">A user of the access file. The password stays in this page's memory, and is gone when you close it.</p>
      </form>
    </main>
  );
}

const uuid = /^[0-9a-f]{8}-[0-9a-f]{4}-/i;

/** Returns the newest run whose id begins so, as pages show it; undefined where there is none among the newest. */
async function runThatBegins(text) {
  if (!/^[0-9a-f]{8}$/.test(text)) return undefined;
  return (await ask("run.list", { limit: 200 })).runs.find((run) => run.runId.startsWith(text))?.runId;
}

/** Finds a town, a run, a key or a hash. */
function Search() {
  const [text, setText] = useState("");
  const [why, setWhy] = useState("");
  const find = async (e) => {
    e.preventDefault();
    const q = text.trim();
    if (!q) return;
    setWhy("");
    try {
      if (uuid.test(q)) {
        await ask("run.get", { runId: q });
        go(["runs", q]);
      } else {
        const key = await ask("result.get", { idempotencyKey: q }).catch(() => null);
        const town = key ? null : await ask("town.get", { townId: q }).catch(() => null);
        const run = key?.runId ?? (town ? null : await runThatBegins(q));
        if (run) go(["runs", run]);
        else if (town) go(["towns", q]);
        else go(["towns"], { q });
      }
      setText("");
      document.activeElement?.blur();
    } catch (error) {
      setWhy(error.code === "UNKNOWN_RUN" ? "No such run is kept" : error.message);
    }
  };
  return (
    <form class="search" role="search" onSubmit={find}>
      <label class="unseen" for="search">Find a town, run, key or hash</label>
      <input id="search" type="search" placeholder="Find a town, run, key…  /" value={text} aria-describedby="search-why" onInput={(e) => { setText(e.target.value); setWhy(""); }} />
      <span id="search-why" role="status">{why}</span>
    </form>
  );
}

render(<App />, document.getElementById("app"));
start();
