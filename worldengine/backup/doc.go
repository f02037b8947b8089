// Package backup makes a copy of a world that is being served, and makes a world of such a copy.
//
// A backup is a directory:
//
//	manifest.json                 what belongs to it, with a hash of each file; written last
//	WORLD_<world>_<NAME>/         a stream, as `nats stream backup` leaves one:
//	    backup.json               its configuration and its state
//	    stream.arc.s2             its messages, with their sequences, times and times to live
//
// Take reads the streams one after another with JetStream's own snapshots, what is derived from the
// log first and the log last: nothing that is derived is ahead of the log then, and what it is behind
// the followers bring after the restore, as they do after a crash. The other way round there would be
// receipts and events of commits that the restored log does not have. Hints to pending commands are
// not copied: which are there follows from the log, and Restore writes them anew.
//
// What was answered before Take began is in the backup; what is answered while it works may be. A
// snapshot is taken message by message while the stream goes on, so a town whose whole history is
// replaced meanwhile would be missing: Take finds that out and fails with ErrOutrun.
package backup
