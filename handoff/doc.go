// Package handoff is the wire contract between an agent and the world engine: what a valid
// execution-handoff.v1 is, what an execution-result.v1 is, and how both are hashed.
//
// It is pure: no I/O, no clock, no randomness. An agent's author can import it alone.
//
//	bytes ── Parse ──> *Handoff ── (the engine decides) ──> Outcome ── NewResult ──> Result
//
// Source: the Execution Handoff Contract (docs/contracts.md names the texts) and the facts read
// off the agents' own library: a value is hashed as the lower-case hex SHA-256 of its canonical
// JSON (RFC 8785), ids are such hashes behind a prefix, and a handoff's command is the mapping
// of its proposal's type and args.
package handoff
