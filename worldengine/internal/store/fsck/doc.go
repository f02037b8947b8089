// Package fsck proves that the log of a world is whole, and repairs damaged towns.
//
// # The proof
//
// A world is its commit log: all else derives from it. Run reads the log once and steps each record
// again. machine.Step gets the town and the run's end before the record, and the record's input. It
// must make the same record, byte for byte. Records of a waiting run are stepped when its handoff
// is known. A record that repairs a town must contain the town's last readable record. Run also
// checks
//
//   - each message by itself: its subject, its headers, the state with its hash, the result;
//   - each message against earlier ones: the guard, the places and ids of events, and that no town
//     accepts a key twice.
//
// Two kinds of records are not stepped; only their events are checked: a record whose prior record
// the log no longer keeps, and events of other producers.
//
// Options.Replicas also compares the log of the nodes of a cluster, message by message. The rest of
// the check is about the log of its leader.
//
// # Its limits
//
//   - The oldest messages of a town or a run, and their keys, are discarded or expire.
//   - A town whose last commits are gone, with nothing behind them, looks like a town at an earlier
//     state. The loss of a refused run or of events between commits leaves no trace either.
//   - A lost beginning of the log shows only in a town whose history is not full: its oldest record
//     names an earlier one, though only full histories discard records. Within a restored backup
//     this proves nothing, since full histories grew while they were copied.
//   - A state that a game reported may be the wrong outcome of its command.
//
// # Cost and concurrency
//
// Memory grows with the number of towns (the last record of each, and at the end their subjects)
// and of accepted keys (some 50 bytes each). It also grows with pending handoffs, runs that have
// not ended, and findings about messages that no engine can load. A check also keeps up to 8 MiB of
// the log, or two of the largest messages.
//
// Run may be called while servers are running, and several times at once without Repair. It starts
// no goroutine. Without Repair it writes nothing; it makes ephemeral consumers only.
//
// # The repair
//
// If a town's last message is not a commit (a stray publish), a repair puts the town
// back to its last readable record, which loses nothing. Options.RepairTowns does the same if the
// last message may be a commit; that commit is then lost. No message of the log is removed or
// changed; a finding about the log itself stays. Run checks again after the repair.
package fsck
