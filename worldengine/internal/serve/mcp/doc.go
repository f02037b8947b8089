// Package mcp lets a language model govern towns: the tools, resources and prompts of the Model
// Context Protocol.
//
//	tools := mcp.New(mcp.Config{Client: client, Actor: "mayor-1"})
//	err := tools.Server().Run(ctx, transport)
//
// Tools is one session. It asks the world through a client that acts as the session's user, so the
// server's rights for that user are the only ones. Handler serves sessions over HTTP, ServeLines one on an
// input and an output.
//
// A proposal is open from its first delivery to the server until the model's host has its result.
// While it is open, the same town, type and argument mean the same handoff. An error says whether
// anything was proposed: see Undone.
package mcp
