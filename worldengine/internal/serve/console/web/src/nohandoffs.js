/** Stands in the bundle for how the client sends handoffs: the page sends none by `send` or `dryRun`. */
export const send = () => {
  throw new Error("the console has no send and no dryRun");
};
export { send as dryRun };
