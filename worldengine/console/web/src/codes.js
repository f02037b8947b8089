/** What each alert means, and what to do: docs/contracts.md and docs/operators.md say more. */
const codes = {
  EVENT_BUS_DELIVERY_FAILED: ["Something could not be brought onto the bus and became a dead letter.",
    "Look at WORLD_<world>_DEADLETTER; mend the cause, remove the letter, and run handoffctl fsck --repair."],
  LOG_LOST: ["The log does not have what receipts or run events were derived from: it lost its end, or an older one was put back.",
    "No handoff is judged until handoffctl fsck --repair has run. Find out first what happened to the data directory."],
  TOWN_MENDED: ["A repair put a town back to its last readable state.", "Compare the town with the game, and put the true state."],
  APPLY_IN_DOUBT: ["The engine cannot know whether the game has applied a command.",
    "Look into the game, and put the true state with handoffctl town patch or put."],
  PLUGIN_LATE_ANSWER: ["A plugin says that it applied a command whose handoff had failed.",
    "Look into the game, and put the true state. Give slow commands a longer --plugin-deadline."],
  PLUGIN_STATE_INVALID: ["A plugin applied a command and reported a state that cannot be the town's.",
    "Mend the plugin; put the true state of the town."],
  PLUGIN_ABSENT: ["A town has no plugin that answers.", "Start the game server, or its plugin."],
  PLUGIN_RETURNED: ["A town that had no plugin has one again.", "Nothing: its commands are applied again."],
  PLUGIN_DOUBLE_ANSWER: ["Two plugins answered for one command.", "Let one plugin alone serve the town."],
  STORAGE_FAILED: ["The disk of the log cannot be written to.", "Make room on the disk."],
  STORAGE_RECOVERED: ["There is room on the disk of the log again.", "Nothing: handoffs are stored again."],
  RUN_LEFT_WAITING: ["A server died with a handoff that waited in it.", "Nothing, once its run is cancelled: the handoff was not judged, and may be sent again."],
  INVALID_TRANSITION: ["An event of a run does not follow from where the run was; the run is inconsistent.",
    "Find the producer that appended it; the run keeps the event and ignores it."],
  PROJECTOR_LAG_HIGH: ["Projections are more than 5 s behind.", "Look at the load of the servers and the disk."],
  PROJECTOR_NON_CONTIGUOUS_FETCH_DETECTED: ["A projection got an event that does not follow the one before.", "It hints at lag; if it stays, run handoffctl fsck."],
  PROJECTOR_CAUSAL_VIOLATION: ["An effect stands before its cause.", "Nothing, unless it persists."],
  PAUSE_DRAIN_TIMEOUT: ["Commands were still being applied when a pause's drain timeout passed.", "Wait for the game, or look why it is slow."],
};

export function meaning(code) {
  const [says, advice] = codes[code] ?? [code, "docs/contracts.md has the codes."];
  return { says, advice };
}
