// Package feed shows the commits of a world's log to its readers: live, as one message a commit,
// and in pages from any cursor (docs/contracts.md, "Reading events"). It stores nothing.
package feed
