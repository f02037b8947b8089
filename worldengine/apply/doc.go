// Package apply is the wire between the world engine and the games that apply accepted commands:
// the
// engine's command-apply.v1, and the plugin's command-applied.v1.
//
//	engine ── Command ──> worldengine.v1.<world>.apply.<town token> ──> plugin
//	engine <── Answer ─────────────── reply ──────────────────────── plugin
//
// An ApplyID names one application of one command. The engine asks with the same id, after a
// restart
// too, until it has a definite answer or its policy gives up. So a plugin applies an id at most
// once, and answers a repeated one with its outcome; package plugin does that for plugins in Go.
// The
// package is pure.
package apply
