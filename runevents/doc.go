// Package runevents is the contract of run events (RunEvents v2.0.1): their envelope, idempotency keys, valid
// transitions, and the projection of a run from its events. Import it to read the events of a world, to show or store
// runs, or to check events that you make yourself. Every function is pure and safe for concurrent use, and needs no
// NATS.
//
// One delivery of a handoff is one run. A producer makes a Write; the append authority, which is the world's server,
// gives it a place (runSeq, from 1) and a time (persistedAt), and stores it as a Record. Go programs append events with
// worldengine/emit, other ones with the verb run.append.
//
// On the bus every record is one message, the JSON of a RunEventRecord. Its subject is
// runevents.v2.<world>.<town token>.<runId>, and it has the headers Event-Type and Nats-Msg-Id (the
// eventId). Consumers know a duplicate by its eventId or its (runId, runSeq), and order events by
// runSeq only.
//
// Project derives the Snapshot of a run from its records. Incremental derives the next Snapshot from
// a Snapshot and later records. Both return alerts about invalid records.
package runevents
