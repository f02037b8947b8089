// Package backup copies a world that is being served, and restores such a copy.
//
// A backup is a directory:
//
//	manifest.json                 the backup's contents, with a hash of each file; written last
//	WORLD_<world>_<NAME>/         a stream, as `nats stream backup` leaves one:
//	    backup.json               its configuration and its state
//	    stream.arc.s2             its messages, with their sequences, times and times to live
//
// Take reads the log, and then the alerts, with JetStream's own snapshots. The first server of the
// restored world derives all else from the log.
//
// The backup has every answer from before Take began, and perhaps later ones. A snapshot is taken
// message by message while the stream goes on, and a full history drops its oldest messages
// meanwhile. A town whose whole history is replaced would be missing: Take detects that and fails
// with ErrOutrun. And a copied message may leave together with later ones that were not copied:
// Take finds such a hole by the guards of the messages behind it, and the manifest names the
// messages that Restore removes, so that the restored history begins behind the hole. Damaged
// messages, which NATS does not deliver, are not in a backup: the history before them stays, and
// fsck finds the same in the restored world as in the other. If such a message is a town's last
// one, the one before replaces it.
package backup
