import { useLoad, useOften } from "../load.js";
import { href } from "../route.js";
import { ask, can } from "../session.js";
import { Age, Said, Time, count, zone } from "../text.jsx";
import { Asking, Empty, Heading, Trouble } from "../ui.jsx";

/** How often the list is asked for while it is looked at: no message says that a client comes or goes. */
const again = 10_000;
/** How many towns of a plugin are named. */
const named = 5;

export function Clients() {
  const list = useLoad(async () => (can("world.clients") ? (await ask("world.clients")).clients : []), []);
  useOften(list.reload, again);
  if (!can("world.clients")) return <><Heading title="Clients" /><Empty>This user may not see who is connected. An operator or an observer of all towns may.</Empty></>;
  return (
    <>
      <Heading title="Clients"><button type="button" onClick={list.reload}>Refresh</button></Heading>
      <Trouble error={list.error} retry={list.reload} />
      <Asking of={list} />
      {list.data?.length === 0 && <Empty>The server does not know its clients: NATS is another process.</Empty>}
      {list.data?.length > 0 && (
        <table class="rows">
          <caption class="unseen">Clients</caption>
          <thead><tr><th scope="col">Client</th><th scope="col">User</th><th scope="col" class="wide">Role</th><th scope="col">State</th><th scope="col" class="wide">Last seen, {zone}</th><th scope="col">Plugin of</th></tr></thead>
          <tbody>{list.data.map((c) => <Row key={`${c.user} ${c.name}`} of={c} />)}</tbody>
        </table>
      )}
    </>
  );
}

function Row({ of: c }) {
  const towns = c.towns ?? [];
  return (
    <tr>
      <td><Said text={c.name || "without a name"} most={40} /></td>
      <td><Said text={c.user || "–"} most={32} /></td>
      <td class="wide soft">{c.role || "–"}</td>
      <td>{c.connections > 0
        ? <><span class="status good">connected</span>{c.connections > 1 && ` ${count(c.connections)} times`}</>
        : <span class="status calm">gone <Age since={c.lastSeen} /> ago</span>}
      </td>
      <td class="wide soft"><Time at={c.lastSeen} /></td>
      <td>
        {towns.length === 0 && <span class="soft">–</span>}
        {towns.slice(0, named).map((id, i) => <span key={id}>{i > 0 && ", "}{id === "*" ? "all towns" : <a href={href(["towns", id])}><Said text={id} most={32} /></a>}</span>)}
        {towns.length > named && ` and ${count(towns.length - named)} more`}
      </td>
    </tr>
  );
}
