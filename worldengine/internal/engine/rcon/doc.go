// Package rcon applies accepted commands on a game server without a plugin: as console commands over
// RCON, Minecraft's remote console.
//
//	Config ── New ──> Console ── Login: render, log in ──> session ── Send: run one by one ──> game server
//
// The operator writes the console commands: a list of templates for each proposal type. A value from
// outside enters a command only if the operator gave a text for it, or if it is an id of harmless
// characters.
//
// A command is applied at most once. A console does not tell whether it has run a command, so
// nothing is sent twice: a failure before the first console command is sent is
// apply.ErrUnavailable, and the command may be applied later. A later failure is apply.ErrInDoubt,
// and only a person who looks at the game knows the outcome. The package stores nothing, and no
// goroutine outlives a call. "Vanilla" is Minecraft's own server.
package rcon
