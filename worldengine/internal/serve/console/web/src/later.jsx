import { useLoad } from "./load.js";
import { Heading, Trouble } from "./ui.jsx";

/** Loads the other pages, once: what is open when the server goes away has them. */
let more = null;
export const loadMore = () => {
  more ??= import("./pages/more.js").catch(() => {
    more = null;
    throw Object.assign(new Error("The server has no such page any more, or is away. Load the page again."), { name: "PAGE_MISSING" });
  });
  return more;
};

/** One of the other pages, or a part of a page that is among them; a quiet part says nothing while it is loaded. */
export function Later({ page, quiet, ...props }) {
  const { data, error, reload } = useLoad(loadMore, []);
  if (quiet && !data) return null;
  if (error && !data) return <><Heading title="This page cannot be shown" /><Trouble error={error} retry={reload} /></>;
  if (!data) return <p class="soft asking">Loading…</p>;
  const Found = data[page];
  return <Found {...props} />;
}
