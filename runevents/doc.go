// Package runevents is the contract of run events (RunEvents v2.0.1): their envelope, how an
// idempotency key is derived, which transitions are valid, and how the events of one run are
// produced, stored and read.
//
// One delivery of a handoff is one run. Its events are produced in order by a Producer, stored
// together in one message of the commit log as a Run, and expanded from there into records:
//
//	Producer ── Emit ──> Run (in the commit log) ── Records ──> RunEventRecord on the bus
//
// The append authority is the commit log's stream: it gives every run's events their place (runSeq,
// from 1) and their persistedAt (the time at which the stream stored the message), together or not
// at all. Other producers ask it by the verb run.append, as worldengine/emit does; a Guard keeps
// them from invalid transitions, and a RunState plans what an append stores and answers:
//
//	Guard.Check ── run.append ──> RunState.Plan ──> Run (in the commit log, on a subject of its own)
//
// The package imports no NATS.
//
// On the bus every record is a plain message, the JSON of one RunEventRecord, on
// runevents.v2.<world>.<town token>.<runId>, with the headers Event-Type and Nats-Msg-Id (the
// eventId). Consumers are idempotent by eventId or (runId, runSeq) and order by runSeq only.
//
// Project derives a run's Snapshot from its records, Incremental the next one from a Snapshot and
// later records; both are pure. A Projector does that for many runs as their records come in, and
// reads a run again from the StateStore when they do not follow each other:
//
//	RunEventRecord ── Projector.Apply ──> Snapshot, Alert
//
// Its alerts are INVALID_TRANSITION, PROJECTOR_CAUSAL_VIOLATION,
// PROJECTOR_NON_CONTIGUOUS_FETCH_DETECTED and PROJECTOR_LAG_HIGH, each once for its event (see
// AlertCode). The reader of the bus tells the Projector how far behind it is with Behind;
// worldengine/projection reads the bus of a world.
package runevents
