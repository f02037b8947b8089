import { useEffect, useRef, useState } from "preact/hooks";
import { useApprovals } from "../approvals.js";
import { difference } from "../diff.js";
import { eachOf, useLoad } from "../load.js";
import { href, route } from "../route.js";
import { ask, can, session } from "../session.js";
import { reload as reloadStatus } from "../status.js";
import { useStore } from "../store.js";
import { Age, Reason, Said, Short, Status, Time, count, counted, visible, zone } from "../text.jsx";
import { Asking, Dialog, Empty, Heading, Trouble } from "../ui.jsx";
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

export function Approvals() {
  const { query } = useStore(route);
  const townId = query.get("town") || undefined;
  const list = useApprovals(townId);
  const closed = useClosed(townId, list.data);
  const [asked, setAsked] = useState(null); // the decision that the dialog is about
  const [done, setDone] = useState([]);
  const [chosen, setChosen] = useState(new Set());
  const { waiting = [], approved = [], more } = list.data ?? {};
  const states = useStates(waiting);
  if (!can("approval.list")) return <><Heading title="Approvals" /><Empty>This user may not see what waits for approval. An operator, an approver or an observer may.</Empty></>;
  const mine = waiting.filter((a) => mayDecide(a.townId));
  const selected = mine.filter((a) => chosen.has(keyOf(a)));
  const choose = (keys) => setChosen(new Set(keys));
  const toggle = (key) => choose(chosen.has(key) ? [...chosen].filter((other) => other !== key) : [...chosen, key]);
  const told = (a, what, outcome) => setDone((all) => [
    { decision: what, ...outcome, key: `${keyOf(a)} ${outcome.signalId ?? Date.now()}`, command: a.command }, ...all].slice(0, mostDone));
  const decideOne = async (a, what, reason) => {
    const { client, me } = session.get();
    told(a, what, await client.decide(a.handoffId, what, {
      townId: a.townId, handoffHash: a.handoffHash, reason, submit: what === "approve", actorId: me.user ?? "console",
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
    choose([]);
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
      {waiting.length > 0 && <p class="soft" aria-live="polite">{more ? "More than " : null}{counted(waiting.length, "proposal waits", "proposals wait")} for a person</p>}
      {mine.length > 1 && (
        <p class="actions">
          <button type="button" onClick={() => choose(selected.length === mine.length ? [] : mine.map(keyOf))}>{selected.length === mine.length ? "Select none" : "Select all"}</button>
          <button type="button" disabled={selected.length === 0} onClick={() => setAsked({ all: selected, what: "approve" })}>{`Approve ${count(selected.length)} selected`}</button>
          <button type="button" disabled={selected.length === 0} onClick={() => setAsked({ all: selected, what: "reject" })}>{`Reject ${count(selected.length)} selected`}</button>
        </p>
      )}
      {list.data && waiting.length === 0 && <Empty>No proposal waits. An operator sets which types of proposals need an approval: <code>handoffctl world settings set require-approval=…</code></Empty>}
      {waiting.map((a) => (
        <Proposal key={keyOf(a)} of={a} state={states.get(a.townId)} onDecide={(what) => setAsked({ all: [a], what })}
          chosen={chosen.has(keyOf(a))} onChoose={mine.length > 1 ? () => toggle(keyOf(a)) : null} />
      ))}
      {approved.length > 0 && <h2>Approved, and not sent again yet</h2>}
      {approved.map((a) => <Proposal key={keyOf(a)} of={a} />)}
      <Closed of={closed} />
      {asked && (
        <Decide key={asked.all.map(keyOf).join()} asked={asked} others={[...waiting, ...approved]} onDone={decide} onClose={() => setAsked(null)} />
      )}
    </>
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
              <td class="what"><Said text={a.command} most={120} /> <span class="soft">of <Said text={a.proposal?.actorId} most={32} /></span></td>
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

function Proposal({ of: a, state, onDecide, chosen, onChoose }) {
  const { proposal } = a;
  const open = a.status === "waiting";
  return (
    <section class={`notice ${open ? "wait" : "calm"}`}>
      <h2><Said text={a.command} most={200} /></h2>
      <p class="facts">
        <span>Town <a data-row href={href(["towns", a.townId])}><Said text={a.townId} most={60} /></a></span>
        <span>Asked for by <Said text={proposal.actorId} most={60} /></span>
        <span>{open ? "Waits" : "Asked"} since <Time at={a.at} /> {zone} (<Age since={a.at} />)</span>
        <span>Expires <Time at={a.expiresAt} /> {zone}</span>
        {a.runId && <span><a href={href(["runs", a.runId])}>run <Short id={a.runId} /></a></span>}
      </p>
      {a.decidedBy && <p>Approved by <Said text={a.decidedBy} most={60} />{a.reason && <>: <Said text={a.reason} most={240} /></>}</p>}
      <p><strong>Why:</strong> <Said text={proposal.reason} most={500} /></p>
      <Effect of={a} state={state} />
      {open && mayDecide(a.townId) && (
        <p class="actions">
          <button type="button" class="primary" onClick={() => onDecide("approve")}>Approve</button>
          <button type="button" onClick={() => onDecide("reject")}>Reject</button>
          {onChoose && <label><input type="checkbox" checked={chosen} onChange={onChoose} /> Select</label>}
        </p>
      )}
    </section>
  );
}

/** What the rules expect of a proposal: as a difference of the town, where its state is that of the proposal. */
function Effect({ of: a, state }) {
  if (a.expectedFailure) return <p><strong>The rules expect it to fail:</strong> <code><Said text={a.expectedFailure} /></code></p>;
  const after = state?.snapshotHash === a.proposal.snapshotHash ? changed(state.snapshot, a.expected) : null;
  const changes = after ? difference(state.snapshot, after) : [];
  return (
    <div class="effect">
      <strong>What the rules expect:</strong>
      {changes.length > 0 ? <Changes of={changes} /> : (
        <ul class="plain">
          {a.expected.map((c) => <li key={c.path}><code><Said text={c.path} most={120} /></code> {shown(c.from, c.fromBytes)} → {shown(c.to, c.toBytes)}</li>)}
        </ul>
      )}
    </div>
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
