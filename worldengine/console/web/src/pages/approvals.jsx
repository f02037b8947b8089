import { useEffect, useState } from "preact/hooks";
import { useApprovals } from "../approvals.js";
import { difference } from "../diff.js";
import { eachOf } from "../load.js";
import { href, route } from "../route.js";
import { ask, can, session } from "../session.js";
import { useStore } from "../store.js";
import { Age, Reason, Said, Short, Status, Time, counted, visible } from "../text.jsx";
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
  const [asked, setAsked] = useState(null); // the decision that the dialog is about
  const [done, setDone] = useState([]);
  const { waiting = [], approved = [], more } = list.data ?? {};
  const states = useStates(waiting);
  if (!can("approval.list")) return <><Heading title="Approvals" /><Empty>This user may not see what waits for approval. An operator, an approver or an observer may.</Empty></>;
  const decide = async (reason) => {
    const { of: a, what } = asked;
    const { client, me } = session.get();
    const answer = await client.decide(a.handoffId, what, {
      townId: a.townId, handoffHash: a.handoffHash, reason, submit: what === "approve", actorId: me.user ?? "console",
    });
    setDone((all) => [{ ...answer, key: keyOf(a) + answer.signalId, command: a.command }, ...all].slice(0, mostDone));
    list.reload();
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
      {list.data && waiting.length === 0 && <Empty>No proposal waits. Which types of proposals take an approval, an operator says: <code>handoffctl world settings set require-approval=…</code></Empty>}
      {waiting.map((a) => <Proposal key={keyOf(a)} of={a} state={states.get(a.townId)} onDecide={(what) => setAsked({ of: a, what })} />)}
      {approved.length > 0 && <h2>Approved, and not sent again yet</h2>}
      {approved.map((a) => <Proposal key={keyOf(a)} of={a} />)}
      {asked && (
        <Decide key={keyOf(asked.of)} asked={asked} onDone={decide} onClose={() => setAsked(null)}
          waits={waiting.some((a) => keyOf(a) === keyOf(asked.of))} />
      )}
    </>
  );
}

/** Asks for the reason of a decision, and says when there is nothing to decide any more. */
function Decide({ asked, waits, onDone, onClose }) {
  const { of: a, what } = asked;
  const [sent, setSent] = useState(false);
  let stop = "";
  if (!sent && !waits) stop = "This proposal does not wait any more: another person has decided it, the town has changed, or it has waited for too long.";
  else if (!mayDecide(a.townId)) stop = "This user may not decide about it any more.";
  const send = async (reason) => {
    setSent(true);
    try {
      await onDone(reason);
    } catch (error) {
      setSent(false);
      throw error;
    }
  };
  const approve = what === "approve";
  return (
    <Dialog title={approve ? "Approve the proposal?" : "Reject the proposal?"} action={approve ? "Approve and execute" : "Reject it"}
      says={<><code><Said text={a.command} most={200} /></code><br />{approve ? "The server executes it at once, if the town has not changed meanwhile." : "Its agent is told that it was denied, and why."}</>}
      danger={!approve} stop={stop} onDone={send} onClose={onClose} />
  );
}

/** What came of a decision. */
function Done({ of: d }) {
  const { result, notSubmitted } = d;
  return (
    <p class={`notice ${d.decision === "reject" || result?.status === "executed" ? "good" : "wait"}`}>
      <strong>{d.decision === "approve" ? "Approved" : "Rejected"}:</strong> <Said text={d.command} most={120} />{" "}
      {result && <><Status of={result.status} /> <Reason code={result.reasonCode} status={result.status} /> <a href={href(["runs", d.runId])}>run <Short id={d.runId} /></a></>}
      {notSubmitted && <>It is not executed yet: <code>{visible(notSubmitted.code)}</code> <Said text={notSubmitted.message} most={240} /></>}
    </p>
  );
}

function Proposal({ of: a, state, onDecide }) {
  const { proposal } = a;
  const open = a.status === "waiting";
  return (
    <section class={`notice ${open ? "wait" : "calm"}`}>
      <h2><Said text={a.command} most={200} /></h2>
      <p class="facts">
        <span>Town <a data-row href={href(["towns", a.townId])}><Said text={a.townId} most={60} /></a></span>
        <span>Asked for by <Said text={proposal.actorId} most={60} /></span>
        <span>{open ? "Waits" : "Asked"} since <Time at={a.at} /> (<Age since={a.at} />)</span>
        <span>Expires <Time at={a.expiresAt} /></span>
      </p>
      {a.decidedBy && <p>Approved by <Said text={a.decidedBy} most={60} />{a.reason && <>: <Said text={a.reason} most={240} /></>}</p>}
      <p><strong>Why:</strong> <Said text={proposal.reason} most={500} /></p>
      <Effect of={a} state={state} />
      {open && mayDecide(a.townId) && (
        <p class="actions">
          <button type="button" class="primary" onClick={() => onDecide("approve")}>Approve</button>
          <button type="button" onClick={() => onDecide("reject")}>Reject</button>
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
