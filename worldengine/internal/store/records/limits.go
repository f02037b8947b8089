package records

import (
	"errors"
	"fmt"

	"worldengine/worldengine/internal/core/runlog"
)

// The log keeps the newest messages of each subject, as many as its history is long. So that
// nothing is discarded while it is needed, appends beyond the bounds of this file are refused.

// ErrRunFull means that the log would discard the first events of a run to store more of them. Nothing was
// stored. The run can still end.
var ErrRunFull = errors.New("records: more appends would push the first ones of the run out " +
	"of the log")

// RunPriority ranks the purposes of appends to a run's own subject: a later one finds room for longer.
type RunPriority int

const (
	RunPriorityAppend RunPriority = iota // events of other producers
	RunPriorityPause                     // a pause of the run by the engine, or its end by a producer
	RunPriorityStep                      // any other event of the engine
	RunPriorityEnd                       // the engine closes or ends the run
)

// reserved returns how many of a subject's last messages are left for later purposes, if the log keeps
// so many. Operators can pause a run any number of times; all other events of the engine are few.
func (p RunPriority) reserved(history int64) int64 {
	switch p {
	case RunPriorityAppend:
		return history / 10
	case RunPriorityPause:
		return history / 20
	case RunPriorityStep:
		return min(4, history/20)
	}
	return 0
}

// CheckRunRoom returns ErrRunFull if an append to a run's own subject, which has so many messages, has
// no room.
func (l *Log) CheckRunRoom(stored int64, priority RunPriority) error {
	history := l.HistoryLimit()
	if most := history - priority.reserved(history); stored >= most {
		return fmt.Errorf("%w: %d of at most %d; end the run and go on in another one, with up to "+
			"%d events in each append", ErrRunFull, stored, most, runlog.MaxAppend)
	}
	return nil
}
