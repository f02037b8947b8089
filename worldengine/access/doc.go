// Package access decides which user may do what on NATS, and for which towns and actors
// (docs/access.md).
//
// There are two NATS accounts. The engine, its streams and operators are in the account of the
// world; agents, plugins, approvers and observers are in the account of its clients
// (ClientsAccount). Only the messages that Crossings lists cross: requests to the verbs, which the
// NATS server marks with their user and which arrive on subjects of their own, and the other way
// messages for subscribers. Plugins are asked from the world's account too. Messages of clients on
// the subjects of commands and events in their own account are diverted, and so are answers that
// they want sent there. So nothing that a client publishes, and no reply subject that it makes up,
// can reach the log, other streams, or JetStream, nor pass for a command or an event.
//
// Within its account a user has the permissions of its role: Permissions. A subject names neither
// the town nor the actor of a request: about these the service asks a Directory.
package access
