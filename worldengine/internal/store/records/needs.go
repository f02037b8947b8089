package records

import (
	"errors"
	"fmt"
)

// ErrHistoryFull: the log would discard a record of the town that must be kept, to store another
// one. Nothing was stored. Ask again when the town has moved on to a later epoch.
var ErrHistoryFull = errors.New("worldengine: the history of the town is full")

// Needs is the end of a town's history that the log must keep. A handoff that failed has consumed
// its key and left the epoch as it was: without its record it would be judged again. An executed
// handoff would be stale. A put can bring back an earlier state of the same epoch, so the hash of
// the state does not count. The records of a pending command have the first events of its run.
//
// The zero Needs is a town without records.
type Needs struct {
	Epoch int64 // of the town
	// Failed is the number of handoffs that failed at the epoch.
	Failed uint32
	// FailedFor is the number of records from the first of them to the newest, and AppliedFor from
	// the acceptance of the pending command to the newest; 0 if there is none.
	FailedFor, AppliedFor uint32
}

// Add adds the town's next record. failed says that it has a failed handoff, pending that a command
// is pending after it. The epoch is the present one, or one that the town never had: a record of
// kind mend may lower it, and then the needs have to be counted from the town's first record.
func (n *Needs) Add(epoch int64, failed, pending bool) {
	if epoch != n.Epoch {
		*n = Needs{Epoch: epoch, AppliedFor: n.AppliedFor}
	}
	n.Count(failed, pending)
}

// Count is Add for a record at any epoch; failed says that a handoff failed at the epoch of n.
func (n *Needs) Count(failed, pending bool) {
	if failed {
		n.Failed++
	}
	if n.Failed > 0 {
		n.FailedFor++
	}
	n.AppliedFor++
	if !pending {
		n.AppliedFor = 0
	}
}

// Records returns the number of records that the log must keep.
func (n *Needs) Records() int64 { return int64(max(n.FailedFor, n.AppliedFor)) }

// TownUse is the purpose of a record on a town's log subject that leaves the epoch as it is. The
// later a use is in the list, the longer it finds room. A record that moves the epoch always does.
type TownUse int

// The uses.
const (
	TownHandoff TownUse = iota // a handoff that fails, is given to a game, or waits for a person
	TownPause                  // a pause; its end has room for longer
	TownSignal                 // decisions of people, puts, a removal
	TownRest                   // the writer stops, and no request for the pending command has arrived
	TownAttempt                // the pending command's other records
	TownResume                 // the end of the pause
	TownEnd                    // the end of the pending command
)

// reserved returns how many of a town's last records are left for later uses, if the log keeps so
// many: one for the end of the pause, one for the end of the pending command, and a fortieth for each
// use between. A pending command has a record for each attempt. Its rests are not bounded, but the
// next writer can do without their records.
func (u TownUse) reserved(history int64) int64 {
	if u >= TownResume {
		return int64(TownEnd - u)
	}
	return 2 + int64(TownAttempt-u)*max(1, history/40)
}

// CheckTown returns ErrHistoryFull if a record of a town with the needs has no room.
func (l *Log) CheckTown(needs Needs, use TownUse) error {
	return CheckTown(l.History(), needs, use)
}

// CheckTown is Log.CheckTown for a log that keeps so many records of a town.
func CheckTown(history int64, needs Needs, use TownUse) error {
	if use == TownResume && needs.AppliedFor == 0 {
		use = TownEnd // no command needs the last record
	}
	if needs.Records() == 0 || needs.Records() < history-use.reserved(history) {
		return nil
	}
	why := fmt.Sprintf("%d handoffs have failed in this state of the town, and their keys must not be "+
		"forgotten", needs.Failed)
	if needs.FailedFor < needs.AppliedFor {
		why = "the pending command has too many records"
	}
	return fmt.Errorf("%w: %s. Of a town the log keeps %d records. What leaves the town at epoch %d is "+
		"refused until it moves on: an operator may put it with a later day, or raise history-per-town",
		ErrHistoryFull, why, history, needs.Epoch)
}
