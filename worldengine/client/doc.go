// Package client asks a world engine over NATS, for agents, tools and tests.
//
//	engine, err := client.Connect("nats://127.0.0.1:4222", client.Options{})
//	town, err := engine.Town(ctx, "town-threatened")
//	h, err := handoff.New(handoff.Proposal{…})
//	outcome, err := engine.Send(ctx, h)
//
// Every call ends within its context and Client.Timeout. Until then it asks again if that can help:
// after 429 and 503 as the server says, and with the same bytes if no answer came. A request that
// could be refused because the first one was carried out (wire.VerbSpec.Changes) is not repeated.
//
// An error is a *ReplyError (the server answered with an error) or an *UnavailableError (no answer
// came, or an invalid one); Commits, Events and Changes have a *LossError besides, and go
// on behind it. docs/contracts.md has the verbs and the codes of errors.
package client
