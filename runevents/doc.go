// Package runevents is the contract of run events (RunEvents v2.0.1): their envelope, idempotency
// keys, valid transitions, and how the events of a run are produced, stored and read.
//
// One delivery of a handoff is one run. A Producer emits its events in order; the commit log stores
// them as a Run in one message, which expands into records:
//
//	Producer ── Emit ──> Run (in the commit log) ── Records ──> RunEventRecord on the bus
//
// The append authority is the commit log's stream: it gives every event its place (runSeq, from 1)
// and its persistedAt (the time at which the stream stored the message), for all events of an
// append
// or for none. Other producers ask it by the verb run.append, as worldengine/emit does; a Guard
// keeps them from invalid transitions, and a RunState plans the events to store and the answers:
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
// AlertCode). The bus reader reports its lag to the Projector by Behind; worldengine/projection
// reads the bus of a world.
package runevents
