import { useEffect, useRef, useState } from "preact/hooks";
import { signIn } from "../session.js";
import { Said } from "../text.jsx";

/** The form of a user of the access file. */
export function SignIn({ why, config: { world, sessions } }) {
  const [user, setUser] = useState("");
  const [pass, setPass] = useState("");
  const field = useRef(null);
  useEffect(() => field.current.focus(), []);
  return (
    <>
      <h1>World <Said text={world} most={40} /></h1>
      <form onSubmit={(e) => { e.preventDefault(); signIn({ user, pass }); }}>
        {why && <p class="trouble" role="alert">{why}</p>}
        <label>User <input ref={field} required autocomplete="username" value={user} onInput={(e) => setUser(e.target.value)} /></label>
        <label>Password <input type="password" required autocomplete="current-password" value={pass} onInput={(e) => setPass(e.target.value)} /></label>
        <button type="submit" class="primary">Sign in</button>
        <p class="soft">A user of the access file. The password stays in this page's memory{sessions && ", and a reload keeps you signed in for a day at most"}.</p>
      </form>
    </>
  );
}
