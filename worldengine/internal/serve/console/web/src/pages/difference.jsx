import { Said } from "../text.jsx";

/** A list of what difference has found. */
export function Changes({ of: changes }) {
  return (
    <ul class="plain">
      {changes.map((c) => (
        <li key={c.what}>
          <span class="what"><Said text={c.what} most={60} /></span>{" "}
          {c.before === undefined ? <>added <ins><Said text={c.after} /></ins></>
            : c.after === undefined ? <>removed <del><Said text={c.before} /></del></>
              : <><del><Said text={c.before} /></del> → <ins><Said text={c.after} /></ins></>}
        </li>
      ))}
    </ul>
  );
}
