package index

import (
	"strings"
	"time"

	"worldengine/runevents"
	"worldengine/worldengine/internal/core/machine"
)

// Flag is a set of facts about a row.
type Flag uint16

// The flags of a row.
const (
	Ended           Flag = 1 << iota // its run has ended
	Pending                          // after the row, a command is being applied in the town
	Paused                           // after the row, the town is paused
	ApprovalWaiting                  // after the row, proposals wait for approval in the town
	Removed                          // after the row, the town is removed
	InDoubt                          // a command failed in the town, but the game may have applied it
	onTownSubject                    // on the log subject of its town
	consumesKey                      // the row's key is accepted
	// Inconsistent: an event of the row made its run INCONSISTENT.
	Inconsistent
)

// RowView is one message of the log as the readers of the index see it. Members that the message lacks are zero.
type RowView struct {
	Seq        uint64    // log sequence
	At         time.Time // persistedAt, in UTC and ms
	Town       string    // town token
	Kind       machine.Kind
	Status     runevents.RunStatus // the run's status after the row
	LastRunSeq uint32              // runSeq of its last event
	Flags      Flag
}

// rowFields are the members of a row that are no names. They are exported for encoding/binary.
type rowFields struct {
	Seq        uint64
	At         int64  // Unix time in ms, 0 if unknown
	Key, RunID uint64 // fingerprints
	// Guard is the sequence of the record on the town's log subject on which the message was decided:
	// its predecessor there. It is 0 if the message created the town, or had no guard.
	Guard      uint64
	Epoch      int64  // of the town's state in the record
	LastRunSeq uint32 // runSeq of its last event
	Waited     uint32 // ms from arrival to At, in a first row
	Flags      Flag
}

// labels are the names of a row from small closed sets, so that few combinations of them exist. detail is
// the type of a proposal, or a signal, or the gaps of a repair.
type labels struct {
	kind                   machine.Kind
	status                 runevents.RunStatus
	result, reason, detail string
}

// texts returns the labels, in their order in the file.
func (l *labels) texts() [5]*string {
	return [...]*string{(*string)(&l.kind), (*string)(&l.status), &l.result, &l.reason, &l.detail}
}

// clone returns labels that keep no message in memory.
func (l labels) clone() labels {
	for _, text := range l.texts() {
		*text = strings.Clone(*text)
	}
	return l
}

// packedRow is a row in memory: 96 bytes without pointers. Names are numbers of dictionaries. The number
// 0 means no name, no row or no run.
type packedRow struct {
	rowFields
	labelsID, town, actor uint32
	prevTown, prevRun     uint32 // the row before this one of the same town, and of the same run
	run                   uint32 // number of the run
	ordinal               uint32 // of the rows on the log subject of the town
}

func (f *rowFields) has(flag Flag) bool { return f.Flags&flag != 0 }
