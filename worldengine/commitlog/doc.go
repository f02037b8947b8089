// Package commitlog reads, extends and keeps the commit log of a world, from which everything else
// is
// derived.
//
// The log is the stream WORLD_<world>_LOG. One message is one Record: all changes of one decision,
// together or not at all. A town's subject, world.<world>.log.<town token>, holds its history; its
// last message is the town's current state and never expires. Every append to a history is guarded
// by the sequence of the message that it was decided on (Log.Commit), so that JetStream orders the
// appends of any number of engines; Log.Retry decides again after a lost race.
//
// The files: log.go (the guarded commit), record.go (a message's contents), store.go (the stream,
// message by message), run.go (events of one run), control.go (pauses), towns.go (a cache of
// current states), get.go, recordat.go, list.go, each.go and bulk.go (reading), headers.go (the
// headers from which the index is made), open.go (streams made and updated), settings.go and
// agree.go (the settings of a world), pending.go (leases of runs that wait), known.go (noticing a
// log that lost messages), mend.go, history.go and restoring.go (for fsck, backup and restore).
package commitlog
