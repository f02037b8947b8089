/**
 * Stands in the bundle for @nats-io/nkeys, whose cryptography was a third of it: the page signs in with a user
 * and a password, and nats-core asks for keys in no other case.
 */
export const fromSeed = () => {
  throw new Error("the console has no NKeys");
};
