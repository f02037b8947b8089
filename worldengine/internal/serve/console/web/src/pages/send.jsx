import { useEffect, useRef, useState } from "preact/hooks";
import { replyError } from "../../../../../../client/js/exchange.mjs";
import { headers as newHeaders } from "@nats-io/nats-core";
import { download } from "../actions.jsx";
import { href, route } from "../route.js";
import { can, session } from "../session.js";
import { useStore } from "../store.js";
import { Reason, Said, Short, Status, visible, visibleJSON } from "../text.jsx";
import { Empty, Heading, Trouble } from "../ui.jsx";
import { Builder } from "./builder.jsx";

/** The pause in typing after which the server is asked what it thinks. */
const typed = 500;
const largest = 256 << 10;

/** Reads what was pasted: a handoff, or a fixture with one. Throws what is wrong with the text. */
function read(text) {
  if (new TextEncoder().encode(text).length > largest) throw new Error("It is larger than 256 KiB, which is more than the server reads.");
  const value = JSON.parse(text.replace(/^\ufeff/, ""));
  if (value === null || typeof value !== "object" || Array.isArray(value)) throw new Error("It must be one JSON object: a handoff, or a fixture.");
  return value.handoff && typeof value.handoff === "object" ? value : { handoff: value };
}

/** Sends a handoff once, as the text says it. With dry, the server only says what would be. */
async function send(handoff, dry) {
  const { client } = session.get();
  const headers = newHeaders();
  if (dry) headers.set("Dry-Run", "true");
  const msg = await client.nc.request(`worldengine.v1.${client.world}.handoff`, JSON.stringify(handoff), { timeout: 30_000, headers });
  const error = replyError(msg);
  if (error) throw error;
  if (dry && msg.headers?.get("Dry-Run") !== "true") throw new Error("The server does not know dry runs.");
  return { result: resultOf(msg, dry), runId: msg.headers?.get("Run-Id"), dry };
}

/** Reads a result, or says what it means that there is none to be read. */
function resultOf(msg, dry) {
  try {
    const result = msg.json();
    if (typeof result.status === "string") return result;
  } catch { /* as said below */ }
  const done = dry ? "Nothing was carried out." : "The handoff may have been carried out: look at the runs of its town.";
  throw Object.assign(new Error(`What the server answered is no result. ${done}`), { name: "UNREADABLE_ANSWER" });
}

export function Send() {
  const { query } = useStore(route);
  const [text, setText] = useState("");
  const [wrong, setWrong] = useState(null);
  const [answer, setAnswer] = useState(null);
  const [busy, setBusy] = useState(false);
  const asked = useRef(0);
  let fixture = null;
  let unread = null;
  try {
    fixture = text.trim() && read(text);
  } catch (error) {
    unread = error;
  }
  const attempt = async (dry) => {
    const mine = ++asked.current;
    setBusy(true);
    try {
      const got = await send(fixture.handoff, dry);
      if (mine === asked.current) { setAnswer(got); setWrong(null); }
    } catch (error) {
      if (mine === asked.current) { setAnswer(null); setWrong(error); }
    }
    if (mine === asked.current) setBusy(false);
  };
  useEffect(() => {
    setWrong(null);
    setAnswer(null);
    asked.current++;
    setBusy(false);
    if (!fixture) return undefined;
    const timer = setTimeout(() => attempt(true), typed);
    return () => clearTimeout(timer);
  }, [text]);
  const drop = async (e) => {
    e.preventDefault();
    const file = e.dataTransfer?.files?.[0] ?? e.target.files?.[0];
    if (file) setText(await file.text());
  };
  if (!can("handoff")) return <><Heading title="Send" /><Empty>This user may not send handoffs. An agent or an operator may.</Empty></>;
  return (
    <>
      <Heading title="Send">
        <label class="button">Open a file<input class="unseen" type="file" accept=".json,application/json" onChange={drop} /></label>
        <button type="button" disabled={!fixture || busy} onClick={() => attempt(true)}>Dry run</button>
        <button type="button" class="primary" disabled={!fixture || busy} onClick={() => attempt(false)}>Send</button>
      </Heading>
      <p class="soft">Build a handoff, or paste or drop an <code>execution-handoff.v1</code> or a fixture. The server
        checks it as you type, without carrying it out. <strong>Send</strong> carries it out, as if its agent had sent it.</p>
      <Builder first={query.get("town")} onMade={setText} />
      <div class="columns send">
        <label class="unseen" for="handoff">Handoff</label>
        <textarea id="handoff" spellcheck={false} rows={22} placeholder="handoffctl new town-threatened PROJECT_ADVANCE wall-perimeter" value={text}
          onInput={(e) => setText(e.target.value)} onDrop={drop} onDragOver={(e) => e.preventDefault()} />
        <section aria-live="polite">
          {unread && <div class="trouble"><strong>This is no JSON yet.</strong> {visible(unread.message)}</div>}
          <Trouble error={wrong} />
          {busy && !answer && <p class="soft asking">Asking…</p>}
          {answer && <Answer answer={answer} fixture={fixture} />}
        </section>
      </div>
    </>
  );
}

function Answer({ answer, fixture }) {
  const { result, runId, dry } = answer;
  const save = () => download("fixture.json", `${JSON.stringify({ ...fixture, expect: { status: result.status, reasonCode: result.reasonCode } }, null, 2)}\n`);
  const failures = result.evaluation?.preconditions?.failures ?? [];
  return (
    <>
      <h2>{dry ? "What would be" : "What was answered"}</h2>
      <p><Status of={result.status} /> <Reason code={result.reasonCode} status={result.status} /></p>
      {failures.map((f, i) => <p key={i}><code><Said text={f.kind} /></code> <Said text={f.detail} most={200} /></p>)}
      {result.worldState && <p class="soft">The town {dry ? "would be" : "is"} at day {result.worldState.postExecutionDecisionEpoch}, <Short id={result.worldState.postExecutionSnapshotHash} size={12} />.</p>}
      {fixture?.expect && <Expected expect={fixture.expect} result={result} />}
      {runId && <p><a href={href(["runs", runId])}>Run <Short id={runId} /></a></p>}
      <button type="button" onClick={save}>Save as a fixture</button>
      <details><summary>The whole result</summary><pre tabIndex={0}>{visibleJSON(result)}</pre></details>
    </>
  );
}

/** What a fixture expects, beside what came. */
function Expected({ expect, result }) {
  const rows = Object.entries(expect).map(([name, value]) => [name, JSON.stringify(value), JSON.stringify(result[name])]);
  return (
    <table class="rows">
      <caption>Expected and actual</caption>
      <thead><tr><th scope="col">Member</th><th scope="col">Expected</th><th scope="col">Actual</th></tr></thead>
      <tbody>{rows.map(([name, want, got]) => (
        <tr key={name}><td><code><Said text={name} /></code></td><td><Said text={want} /></td><td><span class={`status ${want === got ? "good" : "bad"}`}>{want === got ? "same" : "differs"}</span> <Said text={got} /></td></tr>
      ))}</tbody>
    </table>
  );
}
