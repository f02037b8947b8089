/** The pages that are not there at once: a file of their own, which is loaded behind the first page. */
export { Alerts } from "./alerts.jsx";
export { Approvals } from "./approvals.jsx";
export { Attention, Banner } from "./attention.jsx";
export { Clients } from "./clients.jsx";
export { find } from "../find.js";
export { Graphs } from "../graphs.jsx";
export { help } from "../help.js";
export { History } from "./history.jsx";
export { PauseButton } from "./pause.jsx";
export { Run } from "./run.jsx";
export { Runs } from "./runs.jsx";
export { Send } from "./send.jsx";
export { SignIn } from "./signin.jsx";
export { Town } from "./town.jsx";
export { Towns } from "./towns.jsx";
export { suggest } from "../suggest.js";
export { Chooser, Unserved, Worlds } from "./worlds.jsx";
