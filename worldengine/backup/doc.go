// Package backup makes a copy of a world that is being served, and makes a world of such a copy.
//
// A backup is a directory:
//
//	manifest.json                 what belongs to it, with a hash of each file; written last
//	WORLD_<world>_<NAME>/         a stream, as `nats stream backup` leaves one:
//	    backup.json               its configuration and its state
//	    stream.arc.s2             its messages, with their sequences, times and times to live
//
// Take reads the log, and then the alerts, with JetStream's own snapshots. All else is derived from
// the log, and made anew by the first server that serves the restored world.
//
// All that was answered before Take began is in the backup; answers that are given while it works
// may be. A snapshot is taken message by message while the stream goes on, and a history that is
// full gives up its oldest messages meanwhile. So a town whose whole history is replaced would be
// missing: Take finds that out and fails with ErrOutrun. And a message that was copied may leave
// together with later ones that were not yet: Take finds such a hole by the guards of the messages
// behind it, and the manifest names the messages that Restore takes away, so that the restored
// history begins behind the hole. Messages that NATS does not deliver because they are damaged are
// not in a backup: the history before them stays, and fsck finds the same in the restored world as
// in the other, unless such a message is a town's last one: then the one before stands for it.
package backup
