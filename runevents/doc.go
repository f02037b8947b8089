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
// append or for none. Other producers ask it by the verb run.append, as worldengine/emit does; a
// Guard keeps them from invalid transitions, and a RunState plans the events to store and the
// answers:
//
//	Guard.Check ── run.append ──> RunState.Plan ──> Run (in the commit log, on a subject of its own)
//
// On the bus every record is a plain message, the JSON of one RunEventRecord, on
// runevents.v2.<world>.<town token>.<runId>, with the headers Event-Type and Nats-Msg-Id (the
// eventId). Consumers are idempotent by eventId or (runId, runSeq) and order by runSeq only.
//
// Project derives a run's Snapshot from its records, Incremental the next one from a Snapshot and
// later records, with the alerts about invalid ones; both are pure.
// worldengine/runs.Projector does that for the runs that others append to.
//
// The package imports no NATS.
package runevents
