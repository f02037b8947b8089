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
	"worldengine/worldengine/commitlog"
	"worldengine/worldengine/wire"
)

// entry is the part of a log message that the index uses: its subject and headers.
type entry struct {
	seq                                                uint64
	at                                                 int64 // Unix time in ms, 0 if unknown
	town, key, runID, kind, result, reason, actor, typ string
	first, last, waited                                uint32
	moves                                              []runevents.EventType
	flags                                              Flag
}

// flagHeaders are the headers that set a flag of their row.
var flagHeaders = []struct {
	header string
	flag   Flag
}{
	{wire.PendingHeader, Pending}, {wire.PausedHeader, Paused},
	{wire.AskedHeader, Asked}, {wire.ClosingHeader, Closing}, {wire.RemovedHeader, Removed},
}

// newEntry reads a log message. Missing or unreadable headers leave zero values: the record itself
// counts, and fsck reports the headers.
func newEntry(seq uint64, subject string, header nats.Header) entry {
	e := entry{seq: seq, kind: header.Get(wire.KindHeader), key: header.Get(wire.KeyHeader),
		actor: header.Get(wire.ActorHeader), typ: header.Get(wire.TypeHeader)}
	if at, err := time.Parse(time.RFC3339, header.Get(wire.AtHeader)); err == nil {
		e.at = at.UnixMilli()
	}
	arrived, err := time.Parse(time.RFC3339, header.Get(wire.ArrivedHeader))
	if waited := e.at - arrived.UnixMilli(); err == nil && 0 < waited && waited <= math.MaxUint32 {
		e.waited = uint32(waited)
	}
	e.result, e.reason, _ = strings.Cut(header.Get(wire.ResultHeader), " ")
	first, last, _ := strings.Cut(header.Get(wire.RunSeqsHeader), "-")
	e.first, e.last = runSeq(first), runSeq(last)
	if moves := header.Get(wire.RunMovesHeader); moves != "" {
		for move := range strings.SplitSeq(moves, ",") {
			e.moves = append(e.moves, runevents.EventType(move))
		}
	}
	for _, f := range flagHeaders {
		if header.Get(f.header) == "true" {
			e.flags |= f.flag
		}
	}
	e.place(subject, header)
	return e
}

// place sets the members that depend on the subject: world.<w>.<place>[.<token>].
func (e *entry) place(subject string, header nats.Header) {
	tokens := append(strings.Split(subject, "."), "", "", "", "")
	place, token := tokens[2], tokens[3]
	e.runID = header.Get(wire.RunIDHeader)
	switch place {
	case "log":
		e.flags |= OfTown
		if e.kind == string(commitlog.KindHandoff) && e.key != "" {
			e.flags |= accepts
		}
	case "run":
		e.flags |= OfRun
		e.runID, token = cmp.Or(e.runID, token), ""
	}
	e.town = cmp.Or(token, header.Get(wire.TownTokenHeader))
	if id, err := wire.PercentDecode(header.Get(wire.TownHeader)); e.town == "" && id != "" &&
		err == nil {
		e.town = wire.TownToken(id)
	}
}

func runSeq(s string) uint32 {
	n, err := strconv.ParseUint(s, 10, 32)
	if err != nil {
		return 0
	}
	return uint32(n)
}

// fingerprint is the first 8 bytes of the SHA-256 of s, 0 for "". Two keys hardly ever have the
// same.
func fingerprint(s string) uint64 {
	if s == "" {
		return 0
	}
	sum := sha256.Sum256([]byte(s))
	return binary.LittleEndian.Uint64(sum[:])
}

// status returns a run's status after the entry; now is the status before it.
func (e *entry) status(now runevents.RunStatus) runevents.RunStatus {
	if e.runID == "" {
		return ""
	}
	now = cmp.Or(now, runevents.RunPending)
	for _, move := range e.moves {
		if next, valid := runevents.NextRunStatus(now, move); valid {
			now = next
		}
	}
	return now
}
