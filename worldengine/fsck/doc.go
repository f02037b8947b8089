// Package fsck proves that a world is whole, and repairs what can be made again.
//
// # What Run proves
//
// A world is a commit log and two streams that followers derive from it: receipts, by which the
// engine knows duplicates, and run events. Run reads the three streams once, side by side, and
// checks
//
//   - each message of the log by itself: the record, its headers, every hash, id and idempotency
//     key, computed again;
//   - each message of the log against those before it: the guard, the town's state and day, what is
//     pending and paused, the transitions of its run, and its events' payloads against the result;
//   - each derived stream against the log: what the log derives is there, once, in order, to the
//     byte, and nothing else is.
//
// # What it cannot know
//
//   - A town's history and a run's subject discard or expire their oldest messages. What was
//     derived from those can only be checked by itself (Counts.Outlived).
//   - A key that was accepted twice is found by its receipt, so within the retention of the
//     receipts.
//   - A commit that the log has lost is found by its run events, so within the retention of those.
//     The loss of a refused run or of events between commits leaves no trace.
//   - Whether a commit that left a full history was followed before that: a note names such towns.
//   - Whether the log lost its beginning, as far as no town is left of which it should have more: a
//     town's oldest record names the one before it, which only a full history discards. Nor within
//     what was restored from a backup, since full histories went on while they were copied.
//   - Whether a state is the right outcome of a command. The rules are not run again.
//
// # Cost and concurrency
//
// Memory grows with the number of towns (some 300 bytes each, and at the end their subjects), of
// pending handoffs, of runs that have not ended, of wrong receipts (8 bytes each), and of lost
// commits; not with the length of the log. Beside that a check has up to 8 MiB of each stream in
// hand, or two of the largest messages.
//
// Run may be called while servers are running, and several times at once without Repair. It starts
// no goroutine but the follower of a repair, which ends before Run returns. Without Repair it
// writes nothing; it makes ephemeral consumers only.
//
// # What a repair does
//
// Receipts that are missing or wrong are written again and false ones are removed, one by one,
// while followers are kept out. The run events are discarded and derived again, since no decision
// rests on them. A town whose last message is not a commit (a stray publish) is put back to its
// last readable record by a record of kind mend, which loses nothing. Options.MendTowns does the
// same where the last message was a commit, which is lost then. Options.Replay has what was given
// up made again too, and its dead letter removed. No message of the log is removed or changed; a
// finding about the log itself stays. Run checks again behind each round, and three rounds are
// tried.
//
// # Files, as a message of the log goes through them
//
//	fsck.go        Options and Run: check, repair, check again
//	world.go       the check of a world: opens the streams, goes through the log
//	cursor.go      reads a stream in batches, with a look ahead
//	logcheck.go    LogCheck: a message of the log, by its kind, and the state of its town
//	town.go        what a town's record carries over from the one before
//	result.go      records of accepted and refused handoffs
//	pending.go     records of attempts to apply a command outside the engine
//	cancelled.go   records of commands that are not applied any more
//	control.go     records of signals: pause, resume, cancel
//	mend.go        records that put a town back, and the repair that writes them
//	run.go         records of run events between commits, and those that others append
//	runevents.go   ids, keys and times of the events of a record
//	replay.go      the transitions of a run over all of its records
//	retry.go       runs that try another one again
//	payload.go     the payloads of events against the run's result
//	merge.go       what the log derives against what a derived stream has
//	derived.go     a derived stream: expiry, waiting, findings
//	difference.go  one derived message against one stored message
//	receipts.go    the rules of the stream of receipts
//	events.go      the rules of the stream of run events
//	lost.go        commits that run events name and the log does not have
//	evicted.go     commits that full histories have discarded
//	unreadable.go  histories whose last message NATS does not deliver
//	damaged.go     towns that answer TOWN_DAMAGED, and what to do about each
//	repair.go      the repair of the derived streams
//	letters.go     the dead letters whose messages a repair has made again
//	rewrite.go     writing single receipts while followers are kept out
//	report.go      Report, Finding, Counts
//	advice.go      what the findings mean and what to do about them
package fsck
