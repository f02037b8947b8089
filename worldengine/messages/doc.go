// Package messages has the requests and replies of the verbs as Go types, which the server and its
// clients share. docs/contracts.md describes them, and schemas has the schema of each request.
package messages
