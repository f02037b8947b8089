// Package runevents is the contract of run events (RunEvents v2.0.1): their envelope, idempotency
// keys, valid transitions, and how the events of a run are produced, stored and read.
//
// One delivery of a handoff is one run. A Producer emits the events of a run in order. The commit log
// stores them as a Run in one message, which readers expand into records:
//
//	Producer ── Emit ──> Run (in the commit log) ── Records ──> RunEventRecord on the bus
//
// The append authority is the commit log's stream. It stores all events of an append, or none. Every
// stored event has a place (runSeq, from 1) and a persistedAt (the time at which the stream stored
// the message).
//
// Other producers ask the append authority by the verb run.append, as worldengine/emit does. Before
// that, a RunState keeps a producer from invalid transitions. The authority's RunState plans the
// events to store, and the answers:
//
//	RunState.Check ── run.append ──> RunState.Plan ──> Run (in the commit log, on a subject of its own)
//
// On the bus every record is one message, the JSON of a RunEventRecord. Its subject is
// runevents.v2.<world>.<town token>.<runId>, and it has the headers Event-Type and Nats-Msg-Id (the
// eventId). Consumers know a duplicate by its eventId or its (runId, runSeq), and order events by
// runSeq only.
//
// Project derives the Snapshot of a run from its records. Incremental derives the next Snapshot from
// a Snapshot and later records. Both return alerts about invalid records, and both are pure.
// worldengine/internal/engine/projector.Projector projects the runs that other producers append to.
//
// The package imports no NATS.
package runevents
