// The entry that flying-squid loads: it requires its plugins, and the rest is ES modules.
module.exports.server = function (serv) {
  import("./plugin.mjs")
    .then(({ startPlugin }) => startPlugin(serv, this.settings))
    .catch((err) => serv.err(`[worldengine] does not start: ${err.message}`));
};
