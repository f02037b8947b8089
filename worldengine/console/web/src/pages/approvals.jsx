import { useEffect, useState } from "preact/hooks";
import { feed } from "../feed.js";
import { useLoad, useSoon } from "../load.js";
import { href } from "../route.js";
import { ask, can, session } from "../session.js";
import { Age, Said, count } from "../text.jsx";
import { Dialog, Empty, Heading, Trouble } from "../ui.jsx";

const mostApprovals = 1000;

/** Everything that waits for a person's approval, up to a bound. */
async function allApprovals() {
  const approvals = [];
  for (let after; ;) {
    const page = await ask("approval.list", { limit: 200, ...(after && { after }) });
    approvals.push(...page.approvals);
    if (!page.next || approvals.length >= mostApprovals) return { approvals, more: Boolean(page.next) };
    after = page.next;
  }
}

/** The events after which another proposal may wait, or one does no longer. */
const changes = ["RunCompleted", "RunFailed", "SignalAccepted"];

export function Approvals() {
  const list = useLoad(allApprovals, []);
  const soon = useSoon(list.reload, 500);
  useEffect(() => feed.listen((events, dropped) => {
    if (dropped || events.some((e) => changes.includes(e.eventType))) soon();
  }), [soon]);
  if (!can("approval.list")) return <><Heading title="Approvals" /><Empty>This user may not see what waits for approval. An operator, an approver or an observer may.</Empty></>;
  const waiting = (list.data?.approvals ?? []).filter((a) => a.status === "waiting");
  const approved = (list.data?.approvals ?? []).filter((a) => a.status !== "waiting");
  return (
    <>
      <Heading title="Approvals"><button type="button" onClick={list.reload}>Refresh</button></Heading>
      <Trouble error={list.error} retry={list.reload} />
      {list.data && <p class="soft" aria-live="polite">{count(waiting.length)}{list.data.more ? " and more" : ""} proposals wait for a person</p>}
      {list.data && waiting.length === 0 && <Empty>No proposal waits. Which types of proposals take an approval, an operator says: handoffctl world settings set require-approval=…</Empty>}
      {waiting.map((a) => <Proposal key={a.handoffId} of={a} reload={list.reload} />)}
      {approved.length > 0 && <h2>Approved, and not sent again yet</h2>}
      {approved.map((a) => <Proposal key={a.handoffId} of={a} reload={list.reload} />)}
    </>
  );
}

function Proposal({ of: a, reload }) {
  const [decision, setDecision] = useState("");
  const decide = (what) => async (reason) => {
    await ask("approval.decide", {
      handoffId: a.handoffId, decision: what, reason, submit: what === "approve", actorId: session.get().me.user ?? "console",
    });
    reload();
  };
  const { proposal } = a;
  return (
    <section class="notice wait">
      <h2><Said text={a.command} most={200} /></h2>
      <p>
        <Said text={proposal.actorId} most={60} /> asks for it in <a data-row href={href(["towns", a.townId])}><Said text={a.townId} most={60} /></a>, since <Age since={a.at} />.
        {a.decidedBy && <> Approved by <Said text={a.decidedBy} most={60} />{a.reason && <>: <Said text={a.reason} most={240} /></>}</>}
      </p>
      <p><strong>Why:</strong> <Said text={proposal.reason} most={500} /></p>
      {a.expectedFailure
        ? <p><strong>The rules expect it to fail:</strong> <code><Said text={a.expectedFailure} /></code></p>
        : <ul class="plain" aria-label="What the rules expect to change">{a.expected.map((c) => <li key={c.path}><code><Said text={c.path} most={120} /></code> {shown(c.from)} → {shown(c.to)}</li>)}</ul>}
      {can("approval.decide") && a.status === "waiting" && (
        <p class="actions">
          <button type="button" class="primary" onClick={() => setDecision("approve")}>Approve</button>
          <button type="button" onClick={() => setDecision("reject")}>Reject</button>
        </p>
      )}
      {decision === "approve" && <Dialog title="Approve the proposal?" says="The server executes it at once, if the town has not changed meanwhile." action="Approve and execute" onDone={decide("approve")} onClose={() => setDecision("")} />}
      {decision === "reject" && <Dialog title="Reject the proposal?" says="Its agent is told that it was denied, and why." action="Reject it" danger onDone={decide("reject")} onClose={() => setDecision("")} />}
    </section>
  );
}

/** A value of a snapshot, in short. */
function shown(value) {
  return value === undefined ? "nothing" : <Said text={JSON.stringify(value)} most={80} />;
}
