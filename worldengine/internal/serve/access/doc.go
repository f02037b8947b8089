// Package access decides which user may do what on NATS, and for which towns and actors
// (docs/access.md).
//
// There are two NATS accounts. The engine, its streams and operators are in the account of the
// world; agents, plugins, approvers and observers are in the account of its clients
// (ClientsAccount). Only the messages that Imports lists cross. Requests to the verbs cross into
// the world's account: the NATS server marks them with their user, and they arrive on subjects of
// their own. Messages for subscribers, and commands for plugins, cross the other way. If clients
// publish in their own account on the subjects of commands and events, or want answers sent there,
// NATS diverts the messages. So nothing that a client publishes, and no reply subject that it makes
// up, can reach the log, other streams, or JetStream, nor pass for a command or an event.
//
// Within its account a user has the permissions of its role: Permissions. A subject names neither
// the town nor the actor of a request; the service asks a Directory about both.
package access
