// Package commitlog is the commit log of a world, the truth that everything else is derived from,
// and how it is read, extended and kept.
//
// The log is the stream WORLD_<world>_LOG. One message is one Record: everything that one decision
// changed, together or not at all. A town's subject, world.<world>.log.<town token>, holds its
// history; its last message is the town's current state and never expires. Every append to a
// history is guarded by the sequence of the message that it was decided on (Log.Commit), so
// JetStream itself makes one line of it across any number of engines; Log.Retry decides again after
// a lost race.
//
// The files: log.go (the guarded commit), record.go (what a message holds), store.go (the stream,
// message by message), run.go (events of one run), control.go (pauses), towns.go (a cache of
// current states), list.go and each.go (bulk reads), derive.go (what receipts and run events are
// derived from a message), open.go and receipts.go (streams made, updated and replaced), read.go
// (waiting for followers), lookup.go (finding receipts), pending.go and resume.go (hints to where
// commands are being applied, and who goes on with those), mend.go, history.go and restoring.go
// (for fsck, backup and restore), message.go (a stored message of the log or of a derived stream).
package commitlog
