/**
 * The session of a tab, {user, token}, so that a reload does not ask for the password, which is kept nowhere. The
 * server ends it after a day, when the user changes, and with itself.
 */
const key = (world) => `session of ${world}`;

const ask = (method, body) => fetch("session", { method, body: JSON.stringify(body) });

export function saved(world) {
  try {
    return JSON.parse(sessionStorage.getItem(key(world)));
  } catch {
    return null; // the browser keeps nothing for this page
  }
}

const end = (token) => ask("DELETE", { token }).catch(() => {}); // it ends by itself, if later

/** Begins a session of a user who has signed in, and still is. Without one, a reload asks for the password. */
export async function save(world, { user, pass }, still) {
  try {
    const answer = await ask("POST", { user, password: pass });
    if (!answer.ok) return;
    const { token } = await answer.json();
    if (still()) sessionStorage.setItem(key(world), JSON.stringify({ user, token }));
    else end(token);
  } catch { /* as said */ }
}

/** Forgets the session, and ends it at the server. */
export function unsave(world) {
  const { token } = saved(world) ?? {};
  if (!token) return;
  sessionStorage.removeItem(key(world));
  end(token);
}
