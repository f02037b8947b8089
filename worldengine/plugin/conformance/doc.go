// Package conformance tests a plugin against each rule of docs/plugin-protocol.md. It sends the
// requests of an engine, also of one that restarts, is late, or is newer.
//
// It sees the plugin's answers, not its game: a plugin that answers right and applies a command
// twice passes.
package conformance
