// Package messages has the requests and replies of the verbs as Go types, which the server and its
// clients share. cmd/internal/gen makes the schemas of those with a directive; docs/contracts.md lists
// them all.
package messages
