package records

import (
	"errors"
	"fmt"
)

// ErrHistoryFull means that the log would discard a record of the town that must be kept, to store another
// one. Nothing was stored. Ask again when the town has moved on to a later epoch.
var ErrHistoryFull = errors.New("records: the history of the town is full")

// RequiredHistory is the end of a town's history that the log must keep. A handoff that failed has consumed
// its key and left the epoch as it was: without its record it would be judged again. An executed
// handoff would be stale. A put can bring back an earlier state of the same epoch, so the hash of
// the state does not count. The records of a pending command have the first events of its run.
//
// The zero RequiredHistory is a town without records.
type RequiredHistory struct {
	Epoch int64 // of the town
	// FailedHandoffs is the number of handoffs that failed at the epoch.
	FailedHandoffs uint32
	// SinceFailed is the number of records from the first of them to the newest, and SincePending from
	// the acceptance of the pending command to the newest; 0 if there is none.
	SinceFailed, SincePending uint32
}

// Add adds the town's next record. failed says that it has a failed handoff, pending that a command
// is pending after it. The epoch is the present one, or one that the town never had: a repair may
// lower it, and then the needs have to be counted from the town's first record.
func (r *RequiredHistory) Add(epoch int64, failed, pending bool) {
	if epoch != r.Epoch {
		*r = RequiredHistory{Epoch: epoch, SincePending: r.SincePending}
	}
	r.Count(failed, pending)
}

// Count adds a record without looking at its epoch. failed says that a handoff failed at r.Epoch.
func (r *RequiredHistory) Count(failed, pending bool) {
	if failed {
		r.FailedHandoffs++
	}
	if r.FailedHandoffs > 0 {
		r.SinceFailed++
	}
	r.SincePending++
	if !pending {
		r.SincePending = 0
	}
}

// Length returns the number of records that the log must keep.
func (r *RequiredHistory) Length() int64 { return int64(max(r.SinceFailed, r.SincePending)) }

// TownPriority ranks the purposes of records on a town's log subject that leave the epoch as it is: a later one
// finds room for longer. A record that moves the epoch always finds room.
type TownPriority int

const (
	TownPriorityHandoff   TownPriority = iota // a handoff that fails, is given to a game, or waits for a person
	TownPriorityPause                         // a pause; its end has room for longer
	TownPrioritySignal                        // decisions of people, puts, a removal
	TownPriorityUnreached                     // the writer stops, and no request for the pending command has arrived
	TownPriorityAttempt                       // the pending command's other records
	TownPriorityResume                        // the end of the pause
	TownPriorityEnd                           // the end of the pending command
)

// reserved returns how many of a town's last records are left for later purposes, if the log keeps so
// many: one for the end of the pause, one for the end of the pending command, and a fortieth for each
// purpose between. A pending command has a record for each attempt. Its records as unreached, by writers that
// stop are not bounded, but the next writer can do without their records.
func (p TownPriority) reserved(history int64) int64 {
	if p >= TownPriorityResume {
		return int64(TownPriorityEnd - p)
	}
	return 2 + int64(TownPriorityAttempt-p)*max(1, history/40)
}

// CheckHistoryRoom returns ErrHistoryFull if a record of a town with the needs has no room.
func (l *Log) CheckHistoryRoom(needs RequiredHistory, priority TownPriority) error {
	return CheckHistoryRoom(l.HistoryLimit(), needs, priority)
}

// CheckHistoryRoom is Log.CheckHistoryRoom for a log that keeps so many records of a town.
func CheckHistoryRoom(history int64, needs RequiredHistory, priority TownPriority) error {
	if priority == TownPriorityResume && needs.SincePending == 0 {
		priority = TownPriorityEnd // no command needs the last record
	}
	if needs.Length() == 0 || needs.Length() < history-priority.reserved(history) {
		return nil
	}
	why := fmt.Sprintf("%d handoffs have failed in this state of the town, and their keys must not be "+
		"forgotten", needs.FailedHandoffs)
	if needs.SinceFailed < needs.SincePending {
		why = "the pending command has too many records"
	}
	return fmt.Errorf("%w: %s. Of a town the log keeps %d records. What leaves the town at epoch %d is "+
		"refused until it moves on: an operator may put it with a later day, or raise history-per-town",
		ErrHistoryFull, why, history, needs.Epoch)
}
