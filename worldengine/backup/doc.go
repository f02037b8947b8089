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
// restored world derives everything else from the log.
//
// The backup has every answer from before Take began, and perhaps later ones. NATS copies message by
// message while the stream grows, and a full history drops its oldest messages meanwhile. This has
// two consequences:
//
//   - If a town's whole history is replaced, the copy may lack the town. Take fails with ErrOutrun.
//   - A message may be copied before it is dropped, while later ones are dropped before they are
//     copied. Take finds this hole by the guard of the next message. The manifest names the messages
//     before the hole, and Restore removes them.
//
// A backup lacks damaged messages, since NATS does not deliver them. The history before them stays,
// and fsck reports the same about both worlds. If a damaged message is a town's last one, the restored
// town has the state before it.
package backup
