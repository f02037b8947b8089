// Package backup copies a world that is being served, and restores such a copy.
//
// A backup is a directory:
//
//	manifest.json                 the backup's contents, with a hash of each file; written last
//	WORLD_<world>_<NAME>/         a stream, as `nats stream backup` leaves one:
//	    backup.json               its configuration and its state
//	    stream.arc.s2             its messages, with their sequences, times and times to live
//
// Create copies the log first and the alerts second, with JetStream's own snapshots, and writes the manifest last:
// a directory without a manifest is no backup. The first server of the restored world derives everything else from
// the log.
//
// The backup has every answer from before Create began, and perhaps later ones. While NATS copies the
// log message by message, the log grows. A history is the messages of one town in the log. If a
// history is full, each new message drops its oldest one, with two consequences:
//
//   - If a whole history is replaced during the copy, the copy may lack the town. Create then fails
//     with ErrOverwritten.
//   - NATS may copy a message before the log drops it, and the log may drop later messages before NATS
//     copies them. The copy of the history then has a hole. So the manifest names the messages that
//     the log dropped during the copy, and Restore removes them.
//
// A backup lacks damaged messages, since NATS does not deliver them. The messages before a damaged one
// stay in the copy, and fsck reports the same about both worlds. If the last message of a town is
// damaged, the restored town has the state before that message.
package backup
