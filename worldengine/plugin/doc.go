// Package plugin is for authors of game-server plugins in Go. It implements the protocol of docs/plugin-protocol.md: it
// answers the engine's command-apply.v1 requests by calling a function that changes the game. Use it if the game, or a
// bridge to it, runs Go; JavaScript, Python and Java have kits of their own.
//
//	memory, err := plugin.OpenFile("plugin.memory", plugin.FileConfig{})
//	p, err := plugin.Serve(nc, plugin.Config{Memory: memory, Apply: applyInTheGame})
//
// # Guarantees
//
// An applyId is applied at most once per Memory. The Memory durably records an id as begun before
// each call of Config.Apply, and its outcome afterwards; a repeated request gets that outcome. A
// retryable refusal is remembered for its logical attempt only, and the next attempt calls Apply
// again.
//
// Commands of one town are applied one at a time, in the order of their arrival; up to
// Config.Concurrency towns have their commands applied at once. A command beyond Config.Queue is
// answered busy. A repeated request is answered busy while its command waits, and in-progress while
// it is applied. Then each reply subject gets the outcome once: an engine uses one reply subject
// for all requests of an attempt. A command whose deadline passes before its turn is not begun.
//
// Command.Trace is the W3C trace context of the handoff, if the agent sent one.
//
// # Commands in doubt
//
// A command is in doubt if it was begun and its outcome is not in the Memory: Apply returned an
// error or panicked, or the process ended. Since Apply might apply it twice, Config.Recover is
// called instead, which finds the outcome in the game. Without Recover the command is refused with
// ReasonOutcomeUnknown, not retryable, and the engine leaves the town unchanged. Since the game may
// have changed, the plugin logs an error, and an operator corrects the town with town.put. Without
// an answer the town would be blocked until the engine gives up, and "applied" would be a guess
// too.
//
// # One process for a town
//
// One plugin process hosts a town. There is no queue group: with two processes and two memories,
// some commands would be applied twice, too rarely to be noticed. Some requests would go to
// half-dead connections. A Memory's file is locked: a second process with the same file does not
// start.
package plugin
