// Package wire has the names of a world on NATS that clients share with its servers: verbs, subjects, headers, error
// codes and roles. Import it to talk to a world without worldengine/client, to act on the code of a refusal, or to
// subscribe to events. It holds no state, is safe for concurrent use, and needs no NATS.
//
// # Requests and replies
//
// A client asks on worldengine.v1.<world>.<verb> (see Verb) and gives an inbox as the reply
// subject. Every verb is an endpoint of the NATS micro service named worldengine. The world's
// writer answers the requests.
//
// The writer judges the handoffs of one town one after another. NATS keeps the order of one
// client's requests on one connection; it keeps no order between clients, verbs or servers.
//
// A reply to a handoff is an execution-result.v1 with the header RunIDHeader. An error reply has
// the headers ErrorCodeHeader (the status), ErrorHeader (one line for people) and, if the client
// should ask again, RetryAfterHeader; its body is {"error": {"code", "message", "details"}} with a
// Code. docs/contracts.md lists the verbs and the codes.
//
// # Messages
//
// A world's servers publish
//
//	runevents.v2.<world>.<town token>.<runId>           a run event
//	alerts.v1.<world>.<CODE>                            an alert
//	deadletter.v1.<world>.<stream>.<log seq>.<part>     a message that the outbox relay gave up
//	worldengine.v1.<world>.apply.<town token>           a command for the plugin of a town
//	worldengine.v1.<world>.events.<town token>          a commit message, with its run events
//
// The servers keep their own streams on world.<world>.>. No client publishes there. Plugins ask
// each other on worldengine.v1.<world>.hosts.<town token> who hosts a town. TownToken says how a
// town id becomes a town token.
package wire
