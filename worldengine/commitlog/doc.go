// Package commitlog reads, extends and keeps the commit log of a world, from which everything else
// is derived.
//
// The log is the stream WORLD_<world>_LOG. One message is one Record: all changes of one decision,
// together or not at all. A town's subject, world.<world>.log.<town token>, holds its history; its
// last message is the town's current state and never expires. Every append to a history is guarded
// by the sequence of the message that it was decided on (Log.Commit), so that JetStream orders the
// appends of any number of engines; Log.Retry decides again after a lost race.
package commitlog
