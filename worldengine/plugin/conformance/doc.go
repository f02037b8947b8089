// Package conformance asks a plugin as the engine does, and in the ways in which an engine that
// restarts, is late, or is newer asks, and says for each rule of docs/plugin-protocol.md whether
// the plugin keeps it.
//
// It sees what a plugin answers, not what its game did: a plugin that answers right and applies a
// command twice passes.
package conformance
