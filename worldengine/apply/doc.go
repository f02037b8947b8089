// Package apply is the wire between the world engine and what applies accepted commands in a game:
// command-apply.v1, which the engine asks, and command-applied.v1, which a plugin answers.
//
//	engine ── Command ──> worldengine.v1.<world>.apply.<town token> ──> plugin
//	engine <── Answer ─────────────── reply ──────────────────────── plugin
//
// An ApplyID names one application of one command, whatever happens: the engine asks with the same
// id until it has a definite answer or its policy gives up, after a restart too, so a plugin
// applies an id at most once and answers a repeated one with what became of it. Package plugin does
// that for plugins in Go. Inbox does the I/O of package apply, and a Mailbox waits by the clock;
// all else in it is pure.
package apply
