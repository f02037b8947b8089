package fsck

import (
	"bytes"
	"slices"
	"strings"
	"unicode/utf8"

	"worldengine/worldengine/internal/core/machine"
	"worldengine/worldengine/internal/store/commitlog"
)

// Report has the findings of one check of a world. Its JSON is the output of handoffctl fsck -o
// json.
type Report struct {
	World string `json:"world"`
	// LogEnd is the sequence of the log's last message at the start of the check.
	LogEnd uint64 `json:"logEnd"`
	Counts Counts `json:"counts"`
	// FindingCount counts all findings; Findings are the first of them.
	FindingCount int       `json:"findingCount"`
	Findings     []Finding `json:"findings"`
	// Damaged are the towns that answer TOWN_DAMAGED, with their remedies.
	Damaged []DamagedTown `json:"damaged,omitempty"`
	// Notes are facts that the check cannot judge, and tasks for the operator although nothing is
	// wrong now.
	Notes []string `json:"notes,omitempty"`
	// Replicas are the nodes that were compared, the log's leader first; only with Options.Replicas.
	Replicas []commitlog.Replica `json:"replicas,omitempty"`
	// Repair has the changes of a repair; nil if none was requested or necessary.
	Repair *RepairReport `json:"repair,omitempty"`
}

// Counts are the numbers of checked messages, by kind.
type Counts struct {
	Messages int64 `json:"messages"` // of the log
	Towns    int64 `json:"towns"`
	Puts     int64 `json:"puts"`
	Removals int64 `json:"removals"`
	Accepted int64 `json:"accepted"`
	Refused  int64 `json:"refused"`
	// Pending counts the handoffs that were given to a game; Attempts counts the further attempts
	// to apply them. Concluded handoffs are also among Accepted; Cancelled counts the cancelled ones.
	Pending   int64 `json:"pending"`
	Attempts  int64 `json:"attempts"`
	Cancelled int64 `json:"cancelled"`
	// Controls counts the pauses and resumptions; Signals counts the other signals: decisions,
	// cancellations and refused signals.
	Controls int64 `json:"controls"`
	Signals  int64 `json:"signals"`
	// Settings counts the records of the world's settings.
	Settings int64 `json:"settings"`
	// RunRecords counts records with events that the engine emitted between its commits; Appended
	// counts records with events of other producers.
	RunRecords int64 `json:"runRecords"`
	Appended   int64 `json:"appended"`
	// Repairs counts the records that put a damaged town back. PutAside counts the damaged messages
	// that these records put aside and that NATS delivers.
	Repairs  int64 `json:"mends"`
	PutAside int64 `json:"putAside"`
}

// counter returns the counter of a kind of record; nil if the kind is unknown.
func (n *Counts) counter(kind machine.Kind) *int64 {
	switch kind {
	case machine.KindPut:
		return &n.Puts
	case machine.KindRemove:
		return &n.Removals
	case machine.KindRepair:
		return &n.Repairs
	case machine.KindConcluded:
		return &n.Accepted
	case machine.KindAsked, machine.KindRefused:
		return &n.Refused
	case machine.KindPending:
		return &n.Pending
	case machine.KindCancelled:
		return &n.Cancelled
	case machine.KindPause:
		return &n.Controls
	case machine.KindDecided, machine.KindSignal:
		return &n.Signals
	case machine.KindRunEvents:
		return &n.RunRecords
	case machine.KindAppended:
		return &n.Appended
	case machine.KindSettings:
		return &n.Settings
	}
	return nil
}

// Kind is the kind of a finding that is not about a wrong message.
type Kind string

// IndexDiffers: the file of the index in use differs from the log. Sequence names a message of the
// log, which itself is right.
const IndexDiffers Kind = "index-differs"

// ReplicaDiffers: a node of NATS lacks messages that another one has. Sequence is the first one.
const ReplicaDiffers Kind = "replica-differs"

// Finding is one message that is wrong or missing. Texts are valid UTF-8, and cut to 120 bytes.
type Finding struct {
	// Kind is empty for a message that is wrong.
	Kind   Kind   `json:"kind,omitzero"`
	Stream string `json:"stream"`
	// Sequence is the message's place in Stream, 0 for one that is missing.
	Sequence uint64 `json:"sequence"`
	Subject  string `json:"subject"`
	Town     string `json:"town,omitzero"`
	What     string `json:"what"`
	Want     string `json:"want,omitzero"`
	Got      string `json:"got,omitzero"`
}

// RepairReport has the changes that a repair made.
type RepairReport struct {
	// TownsRepaired are the towns that were put back to their last readable record.
	TownsRepaired []DamagedTown `json:"townsMended,omitempty"`
	// After is the report of a check after the repair; nil if the repair broke off.
	After *Report `json:"after"`
}

// Clean reports whether nothing is wrong with the world; after a repair, whether nothing is wrong
// now.
func (r *Report) Clean() bool {
	if r.Repair != nil {
		return r.Repair.After != nil && r.Repair.After.Clean()
	}
	return r.FindingCount == 0
}

func (r *Report) add(finding Finding, limit int) {
	r.FindingCount++
	if len(r.Findings) < limit {
		finding.Want, finding.Got = truncated(finding.Want), truncated(finding.Got)
		finding.Town, finding.What = truncated(finding.Town), truncated(finding.What)
		r.Findings = append(r.Findings, finding)
	}
}

// maxShown bounds a value in a finding, in bytes.
const maxShown = 120

func truncated(s string) string {
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

// excerpts cuts two texts, so that they begin a little before their first difference.
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

// The meaning of the findings of a class, and the operator's remedy.
const (
	adviceLog = "findings in the log: its bytes were changed, or another program wrote to it. " +
		"A repair changes no message of the log, so they stay; a town whose last record can be " +
		"read is served from that. Copy the data directory, look at the disk and at who may " +
		"publish to NATS, and read docs/repair.md"
	adviceIndex = "findings in the index: the file of a server's index differs from the log, which " +
		"alone counts. Stop the server, delete the directory that --index names, and start the " +
		"server: it builds the index from the log"
)

// Advice returns the meaning and the remedy of each class of the report's findings: in the log, in
// the index, and in replicas. Towns that answer TOWN_DAMAGED have advice of their own: see DamagedTown.
func (r *Report) Advice() (all []string) {
	isOfIndex := func(f Finding) bool { return f.Kind == IndexDiffers }
	isOfLog := func(f Finding) bool { return f.Kind == "" }
	if slices.ContainsFunc(r.Findings, isOfLog) {
		all = append(all, adviceLog)
	}
	if slices.ContainsFunc(r.Findings, isOfIndex) {
		all = append(all, adviceIndex)
	}
	if advice := r.adviceReplicas(); advice != "" {
		all = append(all, advice)
	}
	return all
}
