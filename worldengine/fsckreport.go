package worldengine

import (
	"bytes"
	"strings"
	"unicode/utf8"
)

// FsckReport is what a check of a world found.
type FsckReport struct {
	World string `json:"world"`
	// LogEnd is the sequence of the log's last message when the check began: it goes to there.
	LogEnd uint64     `json:"logEnd"`
	Counts FsckCounts `json:"counts"`
	// FindingCount counts all findings; Findings are the first of them.
	FindingCount int           `json:"findingCount"`
	Findings     []FsckFinding `json:"findings"`
	// Repair is what was repaired, where that was asked for and there was something to repair.
	Repair *FsckRepair `json:"repair,omitempty"`
}

// FsckCounts is what was read.
type FsckCounts struct {
	Messages int64 `json:"messages"` // of the log
	Towns    int64 `json:"towns"`
	Puts     int64 `json:"puts"`
	Accepted int64 `json:"accepted"`
	Refused  int64 `json:"refused"`
	// Pending counts the handoffs that were given away to be applied outside the engine, and Attempts
	// the attempts at them after the first. Those that were concluded are among Accepted.
	Pending  int64 `json:"pending"`
	Attempts int64 `json:"attempts"`
	// Controls counts the pauses and resumptions, Signals the operators' other signals: cancellations
	// and refused ones.
	Controls int64 `json:"controls"`
	Signals  int64 `json:"signals"`
	// RunRecords counts records with events that the engine emitted between its commits, Appended
	// those with events that others appended.
	RunRecords int64 `json:"runRecords"`
	Appended   int64 `json:"appended"`
	Receipts   int64 `json:"receipts"` // that are what the log says
	Events     int64 `json:"events"`   // that are what the log says
	// Expired is how many derived messages have outlived their retention and are gone, Outlived how
	// many are there although their log message has left its town's history; those can only be
	// checked by themselves.
	Expired  int64 `json:"expired"`
	Outlived int64 `json:"outlived"`
	// DeadLettered is how many derived messages are not there because they were given up and are
	// dead letters; each is a finding of its own kind.
	DeadLettered int64 `json:"deadLettered"`
}

// FsckKind is the kind of a finding that is no plain difference.
type FsckKind string

// FsckDeadLettered: what is derived from the log is missing because it was given up, and is kept as
// a dead letter. A repair is not made because of it: see docs/contracts.md for what to do.
const FsckDeadLettered FsckKind = "dead-lettered"

// FsckFinding is one place where the world is not as it has to be.
type FsckFinding struct {
	// Kind is empty for what is wrong or missing.
	Kind   FsckKind `json:"kind,omitzero"`
	Stream string   `json:"stream"`
	// Sequence is the message's place in Stream, 0 for one that is missing. LogSequence is the
	// log message that a derived one comes from, as far as that is known.
	Sequence    uint64 `json:"sequence"`
	LogSequence uint64 `json:"logSequence,omitzero"`
	Subject     string `json:"subject"`
	Town        string `json:"town,omitzero"`
	What        string `json:"what"`
	Want        string `json:"want,omitzero"`
	Got         string `json:"got,omitzero"`
}

// FsckRepair is what a repair did.
type FsckRepair struct {
	// ReceiptsWritten and ReceiptsRemoved count the receipts that were written again from the log,
	// and those removed because no accepted handoff has them.
	ReceiptsWritten int `json:"receiptsWritten"`
	ReceiptsRemoved int `json:"receiptsRemoved"`
	// EventsRebuilt says that the stream of the run events was emptied and made again from the log,
	// and EventsLost how many events could not be, because the log message of their run has left
	// its town's history.
	EventsRebuilt bool  `json:"eventsRebuilt"`
	EventsLost    int64 `json:"eventsLost"`
	// After is what a check behind the repair found; nil where the repair broke off.
	After *FsckReport `json:"after"`
}

// Clean says whether the world is as it has to be; after a repair, whether it is now.
func (r *FsckReport) Clean() bool {
	if r.Repair != nil {
		return r.Repair.After != nil && r.Repair.After.Clean()
	}
	return r.FindingCount == 0
}

func (r *FsckReport) add(finding FsckFinding, most int) {
	r.FindingCount++
	if len(r.Findings) < most {
		finding.Want, finding.Got = shortened(finding.Want), shortened(finding.Got)
		finding.Town, finding.What = shortened(finding.Town), shortened(finding.What)
		r.Findings = append(r.Findings, finding)
	}
}

// maxShown is how many bytes of a value a finding shows.
const maxShown = 120

func shortened(s string) string {
	s = strings.ToValidUTF8(s, "\uFFFD") // damage may be anything, and a report is JSON
	if len(s) <= maxShown {
		return s
	}
	end := maxShown
	for !utf8.RuneStart(s[end]) {
		end--
	}
	return s[:end] + "…"
}

// excerpts returns the places of two texts from a little before where they first differ.
func excerpts(want, got []byte) (string, string) {
	const before = 40
	same := 0
	for same < len(want) && same < len(got) && want[same] == got[same] {
		same++
	}
	from := same - before
	if from <= 0 || bytes.Equal(want, got) {
		return string(want), string(got)
	}
	return "…" + string(want[from:]), "…" + string(got[from:])
}
