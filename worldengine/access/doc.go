// Package access says who may do what on NATS, and for whom.
//
// There are two NATS accounts. The engine, its streams and operators are in the account of the world;
// agents, plugins and observers are in the account of its clients (ClientsAccount). Nothing crosses
// but what Crossings lists: requests to the verbs, which the NATS server marks with the user that made
// them, and, the other way, what subscribers may hear. Plugins are asked in the clients' account, over
// a connection of the engine's own. So whatever a client publishes, and whatever reply subject it
// makes up, cannot reach the log, its derived streams, or JetStream.
//
// Within its account a user has the permissions of its role: Permissions. What a subject does not tell,
// the town and the actor of a request, the service asks a Directory about.
package access
