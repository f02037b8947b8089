// Package plugin is for authors of game-server plugins in Go. It answers the world engine's
// command-apply.v1 requests by calling a function that changes the game, and keeps the protocol
// (docs/plugin-protocol.md).
//
//	memory, err := plugin.OpenFile("plugin.memory", plugin.FileConfig{})
//	p, err := plugin.Serve(nc, plugin.Config{Memory: memory, Apply: applyInTheGame})
//
// # Guarantees
//
// An applyId is applied at most once per Memory. The Memory durably records an id as begun before
// each call of Config.Apply, and its outcome after it; a repeated request gets that answer. Applied
// and a refusal for good are remembered for the id, a retryable refusal for its logical attempt:
// the next attempt calls Apply again.
//
// Commands of one town are applied one at a time, in the order of their arrival; up to
// Config.Concurrency towns at once. A command beyond Config.Queue is answered busy, and so is a
// repeated request whose command still waits; one whose command is being applied is answered
// in-progress. Each engine that asked gets the outcome too: once on each reply subject, since an
// engine has one for all its requests of an attempt. A command whose deadline passes before its
// turn is not begun.
//
// Command.Trace is the W3C trace context of the handoff, if the agent sent one.
//
// # Commands in doubt
//
// Between the game's change and the Memory's "done" the process may end, Apply may return an error,
// or panic. The id is then in doubt. Since Apply might apply it twice, Config.Recover is called
// instead: it looks at the game and returns the true outcome. Without a Recover the command is
// refused with ReasonOutcomeUnknown, not retryable, and the engine leaves the town unchanged: that
// may be wrong, is logged as an error, and has to be corrected with town.put. This answer does
// least harm: silence would block the town until the engine gives up, and "applied" would be a
// guess too.
//
// # One process for a town
//
// One plugin process hosts a town. There is no queue group: two processes have two memories, so a
// group would make commands that are applied twice rare instead of plain, and would send requests
// to a half-dead connection. A Memory's file is locked: a second process with the same file does
// not start.
package plugin
