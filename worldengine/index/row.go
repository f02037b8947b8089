package index

import (
	"time"

	"worldengine/runevents"
	"worldengine/worldengine/commitlog"
)

// Flag is a set of facts about a row.
type Flag uint16

// The flags of a row.
const (
	First   Flag = 1 << iota // the first row of its run
	Ended                    // its run has ended
	Pending                  // after the row, a command is being applied in the town
	Paused                   // after the row, the town is paused
	Asked                    // after the row, proposals wait for approval in the town
	Closing                  // only the engine may continue the run
	OfTown                   // on the log subject of its town
	OfRun                    // on the subject of its run
	accepts                  // the row's key is accepted
	Removed                  // after the row, the town is removed
	// InDoubt is no flag of rows. A town is in doubt if a command failed but the game may have
	// applied it. A later result, put or removal ends the doubt.
	InDoubt
)

// Row is one message of the log as the index has it. Members that the message lacks are zero.
type Row struct {
	Seq          uint64    // log sequence
	At           time.Time // persistedAt, in UTC and ms
	Town         string    // town token
	Kind         commitlog.Kind
	Status       runevents.RunStatus // the run's status after it
	ResultStatus string
	Reason       string // reason code of the result
	Type         string // of the proposal or signal
	ActorID      string // actor token
	First, Last  uint32 // runSeqs of its events
	Flags        Flag
}

// row is a Row in memory and on disk: 76 bytes without pointers. Names are numbers of dictionaries.
// The number 0 means no name, no row or no run. Its members are exported for encoding/binary.
type row struct {
	Seq                                      uint64
	At                                       int64  // Unix time in ms
	Key, RunID                               uint64 // fingerprints
	Town, Actor                              uint32
	PrevTown, PrevRun                        uint32 // the rows before it of its town and run
	Run                                      uint32 // number of the run
	FirstSeq, LastSeq                        uint32
	Waited                                   uint32 // ms from arrival to At, in a first row
	Kind, Status, ResultStatus, Reason, Type uint16
	Flags                                    Flag
}

// rowSize is the size of a row on disk in bytes.
const rowSize = 76

func (r *row) has(flag Flag) bool { return r.Flags&flag != 0 }
