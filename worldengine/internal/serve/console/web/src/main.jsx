import { render } from "preact";
import { useEffect, useLayoutEffect } from "preact/hooks";
import { feed } from "./feed.js";
import { entryKey, restore } from "./kept.js";
import { help } from "./keys.js";
import { Overview } from "./pages/overview.jsx";
import { Later, loadMore } from "./later.jsx";
import { useSoon } from "./load.js";
import { areas, href, route } from "./route.js";
import { Search } from "./search.jsx";
import { can, session, signOut, start } from "./session.js";
import { useStatus } from "./status.js";
import { useStore } from "./store.js";
import { Said, count, visible } from "./text.jsx";
import { Boundary, Empty, Heading, Link } from "./ui.jsx";

/** The page of a path; each has a key, so that another town or run is another page. */
function Page({ path }) {
  const [area, id, sub, range] = path;
  if (!area) return <Overview />;
  if (area === "towns" && !id) return <Later page="Towns" />;
  if (area === "towns" && sub === "history") return <Later page="History" key={id} townId={id} range={range} />;
  if (area === "towns") return <Later page="Town" key={id} townId={id} />;
  if (area === "runs" && !id) return <Later page="Runs" />;
  if (area === "runs") return <Later page="Run" key={id} runId={id} />;
  if (area === "send") return <Later page="Send" />;
  if (area === "alerts") return <Later page="Alerts" />;
  if (area === "approvals") return <Later page="Approvals" />;
  if (area === "clients") return <Later page="Clients" />;
  return <><Heading title="No such page" /><Empty><a href={href([])}>Overview</a></Empty></>;
}

/** Returns what the browser calls a page, in its tabs and its history. */
function titleOf([area, id, sub]) {
  const name = areas.find(([a]) => a === (area ?? ""))?.[1] ?? "No such page";
  if (!id) return name;
  if (area === "runs") return `Run ${visible(id).slice(0, 8)}`;
  return `${sub === "history" ? "History of " : ""}${visible(id).slice(0, 60)}`;
}

/** Has the keyboard go on in a page that was opened by a link which is not there any more. */
function takeFocus() {
  if (document.activeElement === document.body) document.getElementById("main")?.focus({ preventScroll: true });
}

function App() {
  const { phase, config, me, link, why, worlds, world, client } = useStore(session);
  const { path, world: wanted } = useStore(route);
  const at = path.join("/");
  const entry = entryKey();
  useLayoutEffect(() => {
    if (restore()) return;
    scrollTo({ top: 0 });
    takeFocus();
  }, [entry]);
  useEffect(() => {
    const page = phase === "ready" ? (worlds && !wanted ? "Worlds" : titleOf(path)) : phase === "signin" ? "Sign in" : "";
    document.title = [page, worlds ? wanted : config?.world, "world engine"].filter(Boolean).join(" · ");
  }, [at, phase, config, worlds, wanted]);
  useEffect(() => { if (phase === "ready") loadMore().catch(() => {}); }, [phase]);
  if (phase === "signin") return <main class="alone"><Later page="SignIn" why={why} config={config} /></main>;
  if (phase !== "ready") return <main class="alone"><h1>World engine</h1><p role="status">{why || "Connecting…"}</p></main>;
  return (
    <>
      <a class="skip" href="#main" onClick={(e) => { e.preventDefault(); document.getElementById("main").focus(); }}>Skip to the page</a>
      <header>
        {worlds ? <Later page="Chooser" quiet /> : <a class="brand" href={href([])}><Said text={config.world} most={24} /></a>}
        <nav aria-label="Pages">
          {client && areas.filter(([area, , verb]) => area !== "clients" && (!verb || can(verb))).map(([area, name]) => (
            <a key={area} href={href(area ? [area] : [])} aria-current={(path[0] ?? "") === area ? "page" : undefined}>
              {name}<Badge of={area} />
            </a>
          ))}
        </nav>
        {client && <Search />}
        <Link />
        <button type="button" class="quiet help" onClick={help} title="Keys and help (?)" aria-label="Keys and help">?</button>
        {config.signIn && <button type="button" class="quiet" onClick={signOut} title={me?.role}>Sign out {me?.user}</button>}
      </header>
      <main id="main" tabIndex={-1} class={link === "stale" ? "old" : ""}>{client && path.length > 0 && <Problems />}<Boundary path={at}>
        {client && world === (wanted ?? world) ? <Page key={entry} path={path} /> : <Later key={wanted} page={wanted ? "Unserved" : "Worlds"} />}
      </Boundary></main>
    </>
  );
}

/** Why the world needs attention, on every page but the overview, which says it itself. */
function Problems() {
  const { data, reload } = useStatus();
  const soon = useSoon(reload);
  useEffect(() => feed.listenAlerts(soon), []);
  return data?.problems?.length > 0 ? <Later page="Banner" of={data} quiet /> : null;
}

/** How many of what a page lists are open. */
const badges = {
  approvals: [({ approvals }) => approvals?.count, "Proposals that wait for a person's approval"],
  alerts: [({ alerts }) => Object.values(alerts?.count ?? {}).reduce((a, b) => a + b, 0), "Open alerts"],
};

function Badge({ of }) {
  const { data } = useStatus();
  const [number, title] = badges[of] ?? [];
  const open = data && number?.(data);
  return open ? <> <span class="badge" title={title}>{count(open)}</span></> : null;
}

render(<App />, document.getElementById("app"));
start();
