import { proposalTypes } from "../../../../../client/js/contract.gen.mjs";
import { ended } from "./rows.js";
import { href } from "./route.js";
import { useAway } from "./status.js";
import { Age, Reason, Said, Short, Status, Time, count, counted, duration, zone } from "./text.jsx";
import { Asking, Empty, Trouble } from "./ui.jsx";

/** Who applies the commands of a town. */
export const appliers = { local: "built-in rules", plugin: "a plugin", rcon: "RCON" };

/** Whether a run without a town is a signal to the world. */
const ofWorld = ({ type }) => type === "PAUSE" || type === "RESUME";

export const nameOf = (type) => proposalTypes[type]?.name ?? (type === "RETRY_STEP" ? "retry" : (type ?? "").toLowerCase());

/** Returns the type of the proposal that a command is of, where it is one. */
const typeOf = (command) => Object.keys(proposalTypes).find((type) => command.startsWith(`${proposalTypes[type].verb} `));

/**
 * What a run or a change was asked to do, without the town that stands beside it; of a signal, the run that it is
 * about; of a run that a producer began, the producer too.
 */
export function What({ row }) {
  const { by, about, command = "", townId, cause } = row;
  if (by) return <><Said text={command} most={48} /> <span class="soft">appended by <Said text={by} most={24} /></span></>;
  const type = row.type ?? typeOf(command);
  if (about) return <><span>{nameOf(type)}</span> <span class="soft">run <Short id={about} /></span></>;
  if (cause && !command) return row.actorId === "world file" ? "from the world file" : causes[cause] ?? cause;
  const verb = proposalTypes[type]?.verb ?? command.split(" ").slice(0, 2).join(" ");
  const rest = command && townId ? command.slice(verb.length + 1 + townId.length) : "";
  return <><span>{nameOf(type)}</span> <span class="soft"><Said text={rest.trim()} most={48} /></span></>;
}

/** Returns runs and the changes that no run has made, the newest first. */
function merged(rows, changes, all) {
  const began = (row) => row.arrivedAt ?? row.startedAt; // a run that was cancelled before its start has no startedAt
  const waiting = all ? [...changes] : changes.filter((c) => rows.length > 0 && c.at > began(rows.at(-1)));
  const out = [];
  for (const row of rows) {
    while (waiting.length > 0 && waiting[0].at > began(row)) out.push(waiting.shift());
    out.push(row);
  }
  return [...out, ...waiting];
}

/** What changed a town: the causes of town.history. */
export const causes = {
  handoff: "handoff", pending: "accepted, being applied", put: "put by a client", control: "pause or resume", mend: "repair",
  remove: "removed", asked: "asked for approval", decided: "approval decided", cancelled: "cancelled",
};

/** A change of the town that no run has made, such as a put. */
function Change({ change, town, choose }) {
  const townId = town ?? change.townId;
  return (
    <tr>
      {choose && <td class="choose" />}
      <td class="id"><a data-row href={href(["towns", townId, "history", String(change.revision)])}>revision {count(change.revision)}</a></td>
      <td class="at"><Time at={change.at} ms /></td>
      {!town && <td class="of"><a href={href(["towns", townId])} tabIndex={-1}><Said text={townId} most={32} /></a></td>}
      <td class="what"><What row={{ ...change, townId }} /></td>
      <td class="wide who"><Said text={change.actorId} most={24} /></td><td class="end"><span class="status calm">changed</span></td><td class="wide"></td><td class="wide"></td>
    </tr>
  );
}

/** The outcome of a run, or the plugin that its command waits for. */
function Outcome({ row }) {
  const away = useAway(row.runId);
  if (!away || ended(row)) return <Status of={row.result ?? row.status} reason={row.reason} />;
  return <span class="status wait" title={`The plugin is away. ${away.todo}`}>no plugin for <Age since={away.since} /></span>;
}

/** Chooses a run, or no longer. */
function Choose({ row, choose: { chosen, set, may } }) {
  if (!may(row)) return <td class="choose" />;
  const toggle = () => set(new Set(chosen.has(row.runId) ? [...chosen].filter((id) => id !== row.runId) : [...chosen, row.runId]));
  return <td class="choose"><input type="checkbox" aria-label={`Choose run ${row.runId.slice(0, 8)}`} checked={chosen.has(row.runId)} onChange={toggle} /></td>;
}

/** Chooses all runs that may be chosen, or none. */
function ChooseAll({ rows, choose: { chosen, set, may } }) {
  const all = rows.filter(may).map((row) => row.runId);
  const every = all.every((id) => chosen.has(id));
  return <th scope="col" class="choose"><input type="checkbox" aria-label="Choose all runs of the list" checked={every} onChange={() => set(new Set(every ? [] : all))} /></th>;
}

/**
 * A table of runs: rows of useRuns. changes are those of the town, or of all towns, that no run has made. choose is
 * {chosen, set, may} where runs can be chosen. Under the mouse the rows stay where they are.
 */
export function RunTable({ list, town, changes = [], most, filtered, choose, label = "Runs" }) {
  const { rows, newer, lost, loading, error, retry, release, hold } = list;
  const over = (e, on) => { if (e.pointerType === "mouse") hold(on); };
  const asking = loading && rows.length === 0; // changes alone would read as if there were no runs
  const all = asking ? [] : merged(rows, changes, !list.more).slice(0, most);
  return (
    <>
      <Trouble error={error} retry={retry} />
      {(newer > 0 || lost) && <button type="button" class="held" onClick={release}>{lost ? "Newer runs" : `${count(newer)} newer`}{list.held && ", held under the pointer"}</button>}
      <Asking of={{ loading: asking }} />
      {all.length === 0 && !asking && !error && (
        <Empty>
          {list.next > 0 ? <>None among the {counted(list.searched, "newest run")}, back to <Time at={list.searchedTo} /> {zone}. There are older ones.</>
            : filtered ? "No runs yet that pass these filters." : "No runs yet. They appear here as agents send handoffs."}
        </Empty>
      )}
      {all.length > 0 && (
        <table class="rows cards" onPointerEnter={(e) => over(e, true)} onPointerLeave={(e) => over(e, false)}>
          <caption class="unseen">{label}</caption>
          <thead>
            <tr>
              {choose && <ChooseAll rows={rows} choose={choose} />}
              <th scope="col">Run</th><th scope="col">Arrived, {zone}</th>{!town && <th scope="col">Town</th>}
              <th scope="col">What</th><th scope="col" class="wide">Who</th><th scope="col">Outcome</th>
              <th scope="col" class="wide">Reason</th><th scope="col" class="wide number">Took</th>
            </tr>
          </thead>
          <tbody>
            {all.map((row) => (row.cause ? <Change key={`${row.revision}`} change={row} town={town} choose={choose} /> : (
              <tr key={row.runId} class={choose?.chosen.has(row.runId) ? "chosen" : ""}>
                {choose && <Choose row={row} choose={choose} />}
                <td class="id"><a data-row href={href(["runs", row.runId])}><Short id={row.runId} /></a></td>
                <td class="at"><Time at={row.arrivedAt ?? row.startedAt} ms /></td>
                {!town && <td class="of">{row.townId ? <a href={href(["towns", row.townId])} tabIndex={-1}><Said text={row.townId} most={32} /></a> : ofWorld(row) && "world"}</td>}
                <td class="what"><What row={row} /></td>
                <td class="wide who"><Said text={row.actorId} most={24} /></td>
                <td class="end"><Outcome row={row} /></td>
                <td class="wide soft"><Reason code={row.reason} status={row.result} most={32} /></td>
                <td class="wide number">{ended(row) ? duration(row.took) : "…"}</td>
              </tr>
            )))}
          </tbody>
        </table>
      )}
    </>
  );
}
