// Package plugin is for authors of game-server plugins in Go: it answers the world engine's
// command-apply.v1 requests by calling a function that changes the game, and keeps to the protocol
// around it. docs/plugin-protocol.md is that protocol in full.
//
//	memory, err := plugin.OpenFile("plugin.memory", plugin.FileConfig{})
//	p, err := plugin.Serve(nc, plugin.Config{Memory: memory, Apply: applyInTheGame})
//
// # What it guarantees
//
// An applyId is applied at most once per Memory. In front of every call of Config.Apply the Memory
// says durably that the id is begun, after it what became of it; a repeated request gets that
// answer. Applied and a refusal for good are remembered for the id, a retryable refusal for its
// logical attempt: the next attempt asks Apply again.
//
// Commands of one town are applied one at a time, in the order of their arrival; towns side by
// side, as many as Config.Concurrency. What does not fit into Config.Queue is answered busy, and so
// is a repeated request whose command still waits; one whose command is being applied is answered
// in-progress. Each engine that asked gets the outcome as well, when that is there: once on each
// reply subject, since an engine has one for all its requests of an attempt. A command whose
// deadline passes before its turn comes is not begun.
//
// Command.Trace is the W3C trace context of the handoff, where the agent sent one.
//
// # What it cannot know
//
// Between the game's change and the Memory's "done" the process may end, Apply may return an error,
// or panic. The id is then in doubt. Asking Apply again might do it twice, so Config.Recover is
// asked instead: it looks at the game and says what is true. Without a Recover the command is
// answered refused with ReasonOutcomeUnknown, not retryable, and the town stays in the engine as it
// was: that may be wrong, is logged as an error, and has to be set right with town.put. It is the
// answer that does least harm: silence would block the town until the engine gives up and say less,
// and "applied" would be a guess as well.
//
// # One process for a town
//
// A town is hosted by one plugin process. There is no queue group: two processes have two memories,
// so a group would only make a command that is applied twice rare instead of plain, and would hand
// requests to a connection that is half dead. A Memory's file is locked, so that a second
// process with the same file does not start.
package plugin
