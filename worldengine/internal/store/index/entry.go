package index

import (
	"cmp"
	"crypto/sha256"
	"encoding/binary"
	"math"
	"strconv"
	"strings"
	"time"

	"github.com/nats-io/nats.go"

	"worldengine/runevents"
	"worldengine/worldengine/internal/core/machine"
	"worldengine/worldengine/internal/kit/layout"
	"worldengine/worldengine/internal/store/commitlog"
	"worldengine/worldengine/internal/store/records"
)

// entry is a row with its names, as newEntry reads it from a log message and decode from the file.
type entry struct {
	rowFields
	labels
	town, actor string
	// runEventTypes are the types of a log message's run-level events, with commas. advanceStatus derives the run's
	// status from them.
	runEventTypes string
}

// flagHeaders are the headers that set a flag of their row.
var flagHeaders = []struct {
	header string
	flag   Flag
}{
	{layout.PendingHeader, Pending}, {layout.PausedHeader, Paused},
	{layout.AskedHeader, ApprovalWaiting}, {layout.RemovedHeader, Removed},
	{layout.InconsistentHeader, Inconsistent},
}

// newEntry reads a log message. Missing or unreadable headers leave zero values: the record itself
// counts, and fsck reports the headers.
func newEntry(seq uint64, subject string, header nats.Header) entry {
	e := entry{actor: header.Get(layout.ActorHeader), runEventTypes: header.Get(layout.RunEventTypesHeader)}
	e.Seq, e.kind, e.detail = seq, records.KindOf(header), header.Get(layout.TypeHeader)
	if at, err := time.Parse(time.RFC3339, header.Get(layout.AtHeader)); err == nil {
		e.At = at.UnixMilli()
	}
	arrived, err := time.Parse(time.RFC3339, header.Get(layout.ArrivedHeader))
	if waited := e.At - arrived.UnixMilli(); err == nil && 0 < waited && waited <= math.MaxUint32 {
		e.Waited = uint32(waited)
	}
	if e.kind == machine.KindRepair {
		e.detail = header.Get(layout.GapsHeader)
	}
	e.Guard, _ = commitlog.GuardOf(header)
	e.Epoch = commitlog.EpochOf(header)
	e.result, e.reason, _ = strings.Cut(header.Get(layout.ResultHeader), " ")
	_, lastSeq, _ := strings.Cut(header.Get(layout.RunSeqsHeader), "-")
	last, _ := strconv.ParseUint(lastSeq, 10, 32)
	e.LastRunSeq = uint32(last)
	for _, f := range flagHeaders {
		if header.Get(f.header) == "true" {
			e.Flags |= f.flag
		}
	}
	e.setSubject(subject, header)
	return e
}

// setSubject sets the members that depend on the subject: world.<w>.<place>[.<token>].
func (e *entry) setSubject(subject string, header nats.Header) {
	tokens := append(strings.Split(subject, "."), "", "", "", "")
	place, token := tokens[2], tokens[3]
	key, runID := header.Get(layout.KeyHeader), layout.RunIDOf(header)
	switch place {
	case "log":
		e.Flags |= onTownSubject
		if e.kind.Spec().ConsumesKey && key != "" {
			e.Flags |= consumesKey
		}
	case "run":
		runID, token = cmp.Or(runID, token), ""
	}
	e.Key, e.RunID = fingerprint(key), fingerprint(runID)
	e.town = cmp.Or(token, header.Get(layout.TownTokenHeader))
}

// fingerprint is the first 8 bytes of the SHA-256 of s, 0 for "". Two keys hardly ever have the
// same fingerprint.
func fingerprint(s string) uint64 {
	if s == "" {
		return 0
	}
	sum := sha256.Sum256([]byte(s))
	return binary.LittleEndian.Uint64(sum[:])
}

// advanceStatus sets the status to which the entry brings its run; now is the status before it.
func (e *entry) advanceStatus(now runevents.RunStatus) {
	if e.RunID == 0 {
		return
	}
	now = cmp.Or(now, runevents.RunStatusPending)
	for eventType := range strings.SplitSeq(e.runEventTypes, ",") {
		if next, valid := runevents.NextRunStatus(now, runevents.EventType(eventType)); valid {
			now = next
		}
	}
	e.status = now
}
