// Package messages has the requests and replies of the verbs as Go types, which the server and its
// clients share. worldengine/internal/gen makes a schema of each type with a schema line; docs/contracts.md
// lists all verbs.
package messages
