import { useEffect, useRef, useState } from "preact/hooks";
import { Dialog } from "../actions.jsx";
import { useApprovals } from "../approvals.js";
import { difference } from "../diff.js";
import { eachOf, useLoad } from "../load.js";
import { href, route, setQuery } from "../route.js";
import { What, nameOf } from "../runtable.jsx";
import { actor, ask, can, session } from "../session.js";
import { reload as reloadStatus } from "../status.js";
import { useStore } from "../store.js";
import { Age, Reason, Said, Short, Status, Time, count, counted, visible, zone } from "../text.jsx";
import { Asking, Empty, Heading, Select, Trouble } from "../ui.jsx";
import { Changes } from "./difference.jsx";

/** How many decisions of this page it goes on showing. */
const mostDone = 5;

/** Tells a proposal from all others: several may have one handoffId, in one town or in two. */
const keyOf = (a) => JSON.stringify([a.townId, a.handoffId, a.handoffHash]);

/** Reports whether the user may decide about a proposal of a town. */
function mayDecide(townId) {
  const { towns } = session.get().me ?? {};
  return can("approval.decide") && (!towns?.length || towns.includes(townId));
}

/** The filters of the address, each with the value that a proposal has. */
const filters = { town: (a) => a.townId, type: (a) => a.proposal.type, actor: (a) => a.proposal.actorId };

/** How many proposals are shown at first. */
const shownAtFirst = 50;

export function Approvals() {
  const { query } = useStore(route);
  const townId = query.get("town") || undefined;
  const list = useApprovals(townId);
  const closed = useClosed(townId, list.data);
  const [asked, setAsked] = useState(null); // the decision that the dialog is about
  const [done, setDone] = useState([]);
  const [chosen, setChosen] = useState(new Set());
  const [most, setMost] = useState(shownAtFirst);
  if (!can("approval.list")) return <><Heading title="Approvals" /><Empty>This user may not see what waits for approval. An operator, an approver or an observer may.</Empty></>;
  const { waiting = [], approved = [], more } = list.data ?? {};
  const passes = (a) => Object.entries(filters).every(([name, of]) => !query.get(name) || of(a) === query.get(name));
  const open = waiting.filter(passes);
  const mine = open.filter((a) => mayDecide(a.townId));
  const selected = mine.filter((a) => chosen.has(keyOf(a)));
  const told = (a, what, outcome) => setDone((all) => [
    { decision: what, ...outcome, key: `${keyOf(a)} ${outcome.signalId ?? Date.now()}`, command: a.command }, ...all].slice(0, mostDone));
  const decideOne = async (a, what, reason) => {
    told(a, what, await session.get().client.decide(a.handoffId, what, {
      townId: a.townId, handoffHash: a.handoffHash, reason, submit: what === "approve", actorId: actor(),
    }));
  };
  const decide = async (all, what, reason) => {
    for (const a of all) {
      try {
        await decideOne(a, what, reason);
      } catch (error) {
        if (all.length === 1) throw error;
        told(a, what, { error });
      }
    }
    setChosen(new Set());
    list.reload();
    reloadStatus();
  };
  return (
    <>
      <Heading title="Approvals">
        {townId && <a class="button" href={href(["approvals"])}>Of all towns</a>}
        <button type="button" onClick={list.reload}>Refresh</button>
      </Heading>
      {townId && <p class="soft">Of <Said text={townId} most={120} /></p>}
      <Trouble error={list.error} retry={list.reload} />
      <Asking of={list} />
      <div aria-live="polite">{done.map((d) => <Done key={d.key} of={d} />)}</div>
      {waiting.length > 0 && (
        <>
          <Filters of={waiting} query={query} />
          <p class="soft" aria-live="polite">{more ? "More than " : null}{open.length < waiting.length && `${count(open.length)} of `}{counted(waiting.length, "proposal waits", "proposals wait")} for a person</p>
        </>
      )}
      {list.data && waiting.length === 0 && <Empty>No proposal waits. An operator sets which types of proposals need an approval: <code>handoffctl world settings set require-approval=…</code></Empty>}
      {open.length > 0 && <Proposals all={open.slice(0, most)} mine={mine} chosen={chosen} setChosen={setChosen} onDecide={(a, what) => setAsked({ all: [a], what })} />}
      {open.length > most && <button type="button" onClick={() => setMost(most * 4)}>Show more ({count(open.length - most)})</button>}
      {selected.length > 0 && (
        <div class="bar actions" role="region" aria-label="Selected proposals">
          <strong>{count(selected.length)} selected</strong>
          <button type="button" class="primary" onClick={() => setAsked({ all: selected, what: "approve" })}>{`Approve ${count(selected.length)} selected`}</button>
          <button type="button" onClick={() => setAsked({ all: selected, what: "reject" })}>{`Reject ${count(selected.length)} selected`}</button>
          <button type="button" class="quiet" onClick={() => setChosen(new Set())}>Clear</button>
        </div>
      )}
      {approved.length > 0 && <><h2>Approved, and not sent again yet</h2><Proposals all={approved} mine={[]} /></>}
      <Closed of={closed} />
      {asked && (
        <Decide key={asked.all.map(keyOf).join()} asked={asked} others={[...waiting, ...approved]} onDone={decide} onClose={() => setAsked(null)} />
      )}
    </>
  );
}

/** The filters, with the values that the proposals have. */
function Filters({ of: waiting, query }) {
  const values = (name, text = (v) => v) => Object.fromEntries([...new Set(waiting.map(filters[name]))].sort().slice(0, 200).map((v) => [v, visible(text(v)).slice(0, 60)]));
  return (
    <form class="filters" aria-label="Filters" onSubmit={(e) => e.preventDefault()}>
      <Select label="What" value={query.get("type")} of={values("type", nameOf)} onChange={(type) => setQuery({ type })} />
      <Select label="Who" value={query.get("actor")} of={values("actor")} onChange={(actor) => setQuery({ actor })} />
      {!query.get("town") && <Select label="Town" of={values("town")} onChange={(town) => setQuery({ town })} />}
    </form>
  );
}

/** A table of proposals. mine are those that the user may decide about. */
function Proposals({ all, mine, chosen, setChosen, onDecide }) {
  const states = useStates(all);
  const decidable = new Set(mine.map(keyOf));
  const choose = mine.length > 1;
  const every = mine.every((a) => chosen.has(keyOf(a)));
  const toggle = (key) => setChosen(new Set(chosen.has(key) ? [...chosen].filter((other) => other !== key) : [...chosen, key]));
  return (
    <table class="rows cards proposals">
      <caption class="unseen">Proposals</caption>
      <thead>
        <tr>
          {choose && <th scope="col" class="choose"><input type="checkbox" aria-label="Select all" checked={every} onChange={() => setChosen(new Set(every ? [] : decidable))} /></th>}
          <th scope="col">Proposal, and why</th><th scope="col">Expected by the rules</th><th scope="col">Town</th><th scope="col" class="wide">Who</th>
          <th scope="col">Waits</th><th scope="col" class="wide">Expires, {zone}</th>{mine.length > 0 && <th scope="col"><span class="unseen">Decision</span></th>}
        </tr>
      </thead>
      <tbody>
        {all.map((a) => {
          const key = keyOf(a);
          const may = decidable.has(key);
          return (
            <tr key={key} class={chosen?.has(key) ? "chosen" : ""}>
              {choose && <td class="choose">{may && <input type="checkbox" aria-label={`Select ${visible(a.command).slice(0, 80)}`} checked={chosen.has(key)} onChange={() => toggle(key)} />}</td>}
              <td class="what">
                <strong><What row={{ type: a.proposal.type, command: a.command, townId: a.townId }} /></strong>
                {a.runId && <> <a data-row href={href(["runs", a.runId])}>run <Short id={a.runId} /></a></>}
                <div class="soft"><Said text={a.proposal.reason} most={240} /></div>
                {a.decidedBy && <div>Approved by <Said text={a.decidedBy} most={60} />{a.reason && <>: <Said text={a.reason} most={240} /></>}</div>}
              </td>
              <td class="effect"><Effect of={a} state={states.get(a.townId)} /></td>
              <td class="of"><a href={href(["towns", a.townId])}><Said text={a.townId} most={60} /></a></td>
              <td class="wide who"><Said text={a.proposal.actorId} most={32} /></td>
              <td class="at"><Age since={a.at} /></td>
              <td class="wide"><Time at={a.expiresAt} /></td>
              {mine.length > 0 && (
                <td class="end">
                  {may && (
                    <span class="actions">
                      <button type="button" class="primary" onClick={() => onDecide(a, "approve")}>Approve</button>
                      <button type="button" onClick={() => onDecide(a, "reject")}>Reject</button>
                    </span>
                  )}
                </td>
              )}
            </tr>
          );
        })}
      </tbody>
    </table>
  );
}

/** How many commands a dialog names. */
const named = 6;

function Commands({ of }) {
  return (
    <>
      {of.slice(0, named).map((a) => <span key={keyOf(a)}><code><Said text={a.command} most={200} /></code><br /></span>)}
      {of.length > named && <>and {count(of.length - named)} more<br /></>}
    </>
  );
}

/** Asks for the reason of a decision, and says when there is nothing to decide any more. */
function Decide({ asked, others, onDone, onClose }) {
  const { all, what } = asked;
  const [sent, setSent] = useState(false);
  const waits = all.filter((a) => others.some((b) => keyOf(b) === keyOf(a) && b.status === "waiting"));
  let stop = "";
  if (!sent && waits.length === 0) {
    stop = all.length === 1 ? "This proposal does not wait any more: another person has decided it, the town has changed, or it has waited for too long."
      : "None of these proposals waits any more.";
  } else if (!all.every((a) => mayDecide(a.townId))) stop = "This user may not decide about it any more.";
  const send = async (reason) => {
    setSent(true);
    try {
      await onDone(waits, what, reason);
    } catch (error) {
      setSent(false);
      throw error;
    }
  };
  const approve = what === "approve";
  const it = all.length === 1 ? "it" : "each";
  const which = all.length === 1 ? "the proposal" : `${count(all.length)} proposals`;
  return (
    <Dialog title={`${approve ? "Approve" : "Reject"} ${which}?`} action={approve ? "Approve and execute" : `Reject ${all.length === 1 ? "it" : "them"}`}
      says={(
        <>
          <Commands of={all} />
          {approve ? `The server executes ${it} at once, if the town has not changed meanwhile.` : all.length === 1 ? "Its agent is told that it was denied, and why." : "Their agents are told that they were denied, and why."}
          {approve && <Stale of={all} others={others} />}
        </>
      )}
      danger={!approve} stop={stop} onDone={send} onClose={onClose} />
  );
}

/** Says which proposals become stale if others of their towns are executed. */
function Stale({ of, others }) {
  const towns = new Set(of.map((a) => a.townId));
  const keys = new Set(of.map(keyOf));
  const stale = others.filter((b) => towns.has(b.townId) && !keys.has(keyOf(b)));
  const again = of.length - towns.size;
  return (
    <>
      {again > 0 && <><br />Several are of one town: the first that is executed makes {counted(again, "other")} of them stale.</>}
      {stale.length > 0 && <><br /><strong>{counted(stale.length, "other proposal")} of {towns.size === 1 ? "the town" : "these towns"} {stale.length === 1 ? "becomes" : "become"} stale:</strong><br /><Commands of={stale} /></>}
    </>
  );
}

/** The proposals that wait no longer, page by page: asked for again when others do. */
function useClosed(townId, list) {
  const [limit, setLimit] = useState(10);
  const closed = useLoad(() => (can("approval.list") ? ask("approval.list", { townId, closed: true, limit }) : null), [townId, limit]);
  const known = useRef(list);
  useEffect(() => {
    if (known.current && known.current !== list) closed.reload();
    known.current = list;
  }, [list]);
  return { ...closed, more: closed.data?.next && limit < mostClosed ? () => setLimit(mostClosed) : null };
}

const mostClosed = 200;

/** How each proposal ended. */
const endings = { denied: ["bad", "rejected"], used: ["good", "approved: its run says how it ended"], stale: ["calm", "stale: the town changed"], expired: ["calm", "expired: nobody decided in time"] };

function Closed({ of }) {
  const rows = of.data?.approvals ?? [];
  if (of.error) return <Trouble error={of.error} retry={of.reload} />;
  if (rows.length === 0) return null;
  return (
    <>
      <h2>No longer waiting</h2>
      <table class="rows cards">
        <caption class="unseen">Proposals that wait no longer</caption>
        <thead><tr><th scope="col">Proposal</th><th scope="col">Asked, {zone}</th><th scope="col">Ended</th><th scope="col">By</th><th scope="col">Why</th><th scope="col">Run</th></tr></thead>
        <tbody>
          {rows.map((a) => (
            <tr key={`${keyOf(a)} ${a.at}`}>
              <td class="what"><What row={{ type: a.proposal?.type, command: a.command, townId: a.townId }} /> <span class="soft">in <a href={href(["towns", a.townId])}><Said text={a.townId} most={32} /></a> by <Said text={a.proposal?.actorId} most={32} /></span></td>
              <td class="at"><Time at={a.at} /></td>
              <td class="end"><span class={`status ${endings[a.status]?.[0] ?? "calm"}`}>{endings[a.status]?.[1] ?? visible(a.status)}</span></td>
              <td><Said text={a.decidedBy} most={32} /></td>
              <td><Said text={a.reason} most={160} /></td>
              <td class="id">{a.runId && <a href={href(["runs", a.runId])}><Short id={a.runId} /></a>}</td>
            </tr>
          ))}
        </tbody>
      </table>
      {of.more && <button type="button" onClick={of.more}>Show more</button>}
    </>
  );
}

/** What came of a decision. */
function Done({ of: d }) {
  const { result, notSubmitted, error } = d;
  return (
    <p class={`notice ${!error && d.decision === "reject" || result?.status === "executed" ? "good" : "wait"}`}>
      <strong>{error ? "Not decided" : d.decision === "approve" ? "Approved" : "Rejected"}:</strong> <Said text={d.command} most={120} />{" "}
      {result && <><Status of={result.status} /> <Reason code={result.reasonCode} status={result.status} /> <a href={href(["runs", d.runId])}>run <Short id={d.runId} /></a></>}
      {error && <><code>{visible(error.code ?? error.name)}</code> <Said text={error.message} most={240} /></>}
      {notSubmitted && <>is not executed yet: <code>{visible(notSubmitted.code)}</code> <Said text={notSubmitted.message} most={240} />{d.runId && <>: <a href={href(["runs", d.runId])}>run <Short id={d.runId} /></a></>}</>}
    </p>
  );
}

/** What the rules expect of a proposal: as a difference of the town, where its state is that of the proposal. */
function Effect({ of: a, state }) {
  if (a.expectedFailure) return <>The rules expect it to fail: <code><Said text={a.expectedFailure} /></code></>;
  const after = state?.snapshotHash === a.proposal.snapshotHash ? changed(state.snapshot, a.expected) : null;
  const changes = after ? difference(state.snapshot, after) : [];
  if (changes.length > 0) return <Changes of={changes} />;
  return (
    <ul class="plain">
      {a.expected.map((c) => <li key={c.path}><code><Said text={c.path} most={120} /></code> {shown(c.from, c.fromBytes)} → {shown(c.to, c.toBytes)}</li>)}
    </ul>
  );
}

/** A value of a snapshot, in short. */
const shown = (value, bytes) => (bytes ? `${bytes} bytes` : value === undefined ? "nothing" : <Said text={JSON.stringify(value)} most={80} />);

/** Returns a snapshot with other values at JSON Pointers, or null where it has no such places. */
function changed(snapshot, changes) {
  const root = { "": structuredClone(snapshot) };
  for (const { path, to } of changes) {
    const names = path.split("/").map((name) => name.replaceAll("~1", "/").replaceAll("~0", "~"));
    const last = names.pop();
    const place = names.reduce((at, name) => (at && typeof at === "object" && Object.hasOwn(at, name) ? at[name] : null), root);
    if (!place || typeof place !== "object") return null;
    if (to === undefined) delete place[last];
    else Object.defineProperty(place, last, { value: to, enumerable: true, configurable: true, writable: true });
  }
  return root[""];
}

/** The states of the towns in which proposals wait, by id. */
function useStates(waiting) {
  const [states, setStates] = useState(new Map());
  const wanted = new Map(waiting.map((a) => [a.townId, a.proposal.snapshotHash]));
  const key = [...wanted].flat().join("\n");
  useEffect(() => {
    let over = false;
    const missing = [...wanted].filter(([townId, hash]) => states.get(townId)?.snapshotHash !== hash);
    const got = new Map();
    eachOf(missing, async ([townId]) => {
      try {
        got.set(townId, await ask("town.get", { townId }));
      } catch { /* its proposals are shown by paths */ }
    }).then(() => { if (!over && got.size > 0) setStates((known) => new Map([...known, ...got])); });
    return () => { over = true; };
  }, [key]);
  return states;
}
