import { useState } from "preact/hooks";
import { argumentValues, proposalTypes } from "../../../../../../client/js/contract.gen.mjs";
import { makeHandoff } from "../../../../../../client/js/handoff.mjs";
import { useLoad } from "../load.js";
import { nameOf } from "../runtable.jsx";
import { ask, session } from "../session.js";
import { visible } from "../text.jsx";
import { Select, Trouble } from "../ui.jsx";

const types = Object.fromEntries(Object.keys(proposalTypes).map((type) => [type, nameOf(type)]));
/** How many towns are suggested while one types. */
const most = 20;

const named = (items) => Object.fromEntries((items ?? []).slice(0, 200).map((item) => [item.id, visible(item.name || item.title || item.id).slice(0, 60)]));

/** Returns the values that the argument of a type may have in a town, each with its text. */
function choices(type, snapshot) {
  if (argumentValues[type]) return Object.fromEntries(argumentValues[type].map((v) => [v, v]));
  if (!snapshot) return {};
  if (proposalTypes[type].argument === "projectId") return named(snapshot.projects);
  return named(type === "MAYOR_ACCEPT_MISSION" ? snapshot.sideQuests : [snapshot.mission].filter(Boolean));
}

/** The town of an id, or null while there is none. */
const townOf = (townId) => ask("town.get", { townId }).catch((error) => {
  if (error.code === "UNKNOWN_TOWN") return null;
  throw error;
});

/** Builds a handoff from a town, a type and its argument: onMade gets it as JSON. */
export function Builder({ first, onMade }) {
  const { me } = session.get();
  const [wish, setWish] = useState({ town: first ?? "", type: "", value: "", actor: me.actors?.[0] ?? me.user ?? "", reason: "" });
  const [trouble, setTrouble] = useState(null);
  const towns = useLoad(() => ask("town.list", { text: wish.town || undefined, limit: most }), [wish.town]);
  const town = useLoad(() => (wish.town ? townOf(wish.town) : null), [wish.town]);
  const known = town.data?.townId === wish.town ? town.data : null;
  const set = (change) => setWish((w) => ({ ...w, ...change }));
  const values = wish.type ? choices(wish.type, known?.snapshot) : {};
  const value = wish.value in values ? wish.value : "";
  const make = async (e) => {
    e.preventDefault();
    setTrouble(null);
    try {
      const { type, actor: actorId, reason } = wish;
      onMade(JSON.stringify(await makeHandoff(known, { type, actorId, reason, args: { [proposalTypes[type].argument]: value } }), null, 2));
    } catch (error) {
      setTrouble(crypto.subtle ? error : Object.assign(new Error("The browser computes hashes on https and on localhost alone. Use handoffctl new instead."), { name: "NO_HASHES" }));
    }
  };
  const field = (label, name, more) => <label class="filter">{label} <input required value={wish[name]} onInput={(e) => set({ [name]: e.target.value })} {...more} /></label>;
  return (
    <form class="filters builder" aria-label="Build a handoff" onSubmit={make}>
      {field("Town", "town", { list: "towns-known", autocomplete: "off" })}
      <datalist id="towns-known">{(towns.data?.towns ?? []).map((t) => <option key={t.townId} value={t.townId} />)}</datalist>
      <Select label="What" none="choose" value={wish.type} of={types} onChange={(type) => set({ type, value: "" })} />
      <Select label={wish.type ? { projectId: "Project", missionId: "Mission" }[proposalTypes[wish.type].argument] ?? "Which" : "Which"}
        none={wish.type && known && Object.keys(values).length === 0 ? "the town has none" : "choose"} value={value} of={values} onChange={(v) => set({ value: v })} />
      {field("Actor", "actor")}
      {field("Reason", "reason")}
      <button type="submit" disabled={!known || !value}>Build</button>
      {wish.town && !town.loading && !known && !town.error && <span class="soft">No town has this id.</span>}
      <Trouble error={trouble ?? town.error} />
    </form>
  );
}
