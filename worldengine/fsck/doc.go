// Package fsck proves that the log of a world is whole, and puts damaged towns back.
//
// # The proof
//
// A world is its commit log: all else derives from it. Run reads the log once and checks
//
//   - each message by itself: the record, its headers, every hash, id and idempotency key, computed
//     again;
//   - each message against those before it: the guard, and the record that its input makes of the
//     town before it, byte for byte (machine.Step); for a command that a game applies the attempts,
//     the transitions of its run, and its events' payloads against the result; and that no town
//     accepts a key twice.
//
// # Its limits
//
//   - A town's history and a run's subject discard or expire their oldest messages, with their keys.
//   - A town whose last commits are gone, with nothing behind them, is a town at an earlier state.
//     The loss of a refused run or of events between commits leaves no trace either.
//   - A lost beginning of the log is found only by a town that should have more: its oldest record
//     names the one before it, which only a full history discards. It is not found within a restored
//     backup, since full histories went on while they were copied.
//   - A state that a game reported may be the wrong outcome of its command.
//
// # Cost and concurrency
//
// Memory grows with the number of towns (the last record of each, and at the end their subjects),
// of
// accepted keys (some 50 bytes each), of pending handoffs and of runs that have not ended. A check
// also holds up to 8 MiB of the log, or two of the largest messages.
//
// Run may be called while servers are running, and several times at once without Repair. It starts
// no goroutine. Without Repair it writes nothing; it makes ephemeral consumers only.
//
// # The repair
//
// If a town's last message is not a commit (a stray publish), a record of kind mend puts the town
// back to its last readable record, which loses nothing. Options.MendTowns does the same if the
// last
// message was a commit, which is lost then. No message of the log is removed or changed; a finding
// about the log itself stays. Run checks again after the repair.
//
// # Files, as a message of the log goes through them
//
//	fsck.go        Options and Run: check, repair, check again
//	world.go       the check of a world: goes through the log
//	cursor.go      reads the log in batches
//	logcheck.go    LogCheck: a message of the log, by its kind, and the state of its town
//	step.go        steps the town before a record again, by the record's input
//	town.go        a town, and the members that records about a command carry over
//	result.go      records of accepted and refused handoffs
//	pending.go     records of attempts to apply a command outside the engine
//	cancelled.go   records of commands that are not applied any more
//	control.go     records of signals: pause, resume, cancel
//	mend.go        records that put a town back, and the repair that writes them
//	run.go         records of run events between commits, and of those that others append
//	runevents.go   ids, keys and times of the events of a record
//	replay.go      the transitions of a run over all of its records
//	retry.go       runs that try another one again
//	payload.go     the payloads of events against the run's result
//	keys.go        keys that were accepted twice
//	behead.go      histories that have lost their beginning
//	unreadable.go  histories whose last message NATS does not deliver
//	damaged.go     towns that answer TOWN_DAMAGED, and their remedies
//	report.go      Report, Finding, Counts
//	advice.go      the meanings and remedies of the findings
package fsck
