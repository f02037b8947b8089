// Package handoff is the wire contract between an agent and the world engine: it makes, validates and hashes an
// execution-handoff.v1, and reads and verifies an execution-result.v1. Import it in an agent or a tester, alone or with
// worldengine/client. Every function is pure (no I/O, clock or randomness) and safe for concurrent use.
//
//	bytes ── Parse ──> *Handoff ── (the engine decides) ──> Outcome ── NewResult ──> Result
//
// Source: the Execution Handoff Contract (docs/contracts.md names the texts), and facts observed in
// the agents' own library: a value's hash is the lower-case hex SHA-256 of its canonical JSON (RFC
// 8785), ids are such hashes behind a prefix, and a handoff's command maps its proposal's type and
// args.
package handoff
