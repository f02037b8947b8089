// Package rcon applies accepted commands on a game server that has no plugin: as console commands,
// over RCON, the remote console of Minecraft.
//
//	Config ── New ──> Console ── Apply: render, log in, run one by one ──> game server
//
// The operator writes the commands: a list of templates per proposal type. A value from outside gets
// into a command only if the operator gave a text for it, or if it is an id of harmless characters.
//
// A console has no ids of applications, so a sent command cannot be asked about or sent again. Hence
// the promise is at most once: before the first command may have left, a failure is
// apply.ErrUnavailable and the command may be given again; from then on it is apply.ErrInDoubt, and
// only a person who looks into the game knows. The package keeps no log and starts no goroutine
// that outlives a call.
package rcon
