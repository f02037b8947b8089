// Package messages has the requests and replies of the verbs as Go types, which the server and its clients share. The
// methods of worldengine/client return them; import it to name these types, or to send requests without that client.
// docs/contracts.md lists all verbs.
//
// worldengine/internal/gen makes a schema of each type with a schema line. Servers and clients add members: a reader
// ignores the members that it does not know, and a member that is absent has its zero value.
package messages
