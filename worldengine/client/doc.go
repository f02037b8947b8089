// Package client asks a world engine over NATS, for agents, tools and tests.
//
//	engine, err := client.Connect("nats://127.0.0.1:4222", client.Options{})
//	town, err := engine.Town(ctx, "town-threatened")
//	h, err := handoff.New(handoff.Proposal{…})
//	outcome, err := engine.Send(ctx, h)
//
// Every call ends within its context and Client.Timeout. Until then it asks again where that can
// help: after 429 and 503 as the server says, and with the same bytes where no answer came. What
// could be refused because the first request was carried out (wire.Verb.Changes) is not asked
// again.
//
// An error is a *ReplyError (the server answered with an error) or an *UnavailableError (no answer
// came, or none that can be believed); Commits, Events and Changes have a *LossError besides, and go
// on behind it. docs/contracts.md has the verbs and the codes of errors.
package client
