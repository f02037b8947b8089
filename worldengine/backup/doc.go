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
// log first and the log last: nothing that is derived is ahead of the log then, and what it is
// behind the followers bring after the restore, as they do after a crash. The other way round there
// would be receipts and events of commits that the restored log does not have. Hints to pending
// commands are not copied: which are there follows from the log, and Restore writes them anew.
//
// What was answered before Take began is in the backup; what is answered while it works may be. A
// snapshot is taken message by message while the stream goes on, and a history that is full gives
// up its oldest messages meanwhile. So a town whose whole history is replaced would be missing:
// Take finds that out and fails with ErrOutrun. And a message that was copied may leave together
// with later ones that were not yet: Take finds such a hole by the guards of the messages behind
// it, and the manifest says what Restore takes away, so that the restored history begins behind it.
// What NATS does not deliver because it is damaged is not in a backup: the history before it stays,
// and fsck says of the restored world what it says of the other, but where it is a town's last
// message: then the one before it stands for it.
package backup
