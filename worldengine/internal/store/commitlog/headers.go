package commitlog

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/go-json-experiment/json"
	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"worldengine/handoff"
	"worldengine/runevents"
	"worldengine/worldengine/internal/core/machine"
	"worldengine/worldengine/internal/core/town"
	"worldengine/worldengine/wire"
)

// Headers returns the headers of a record's message. Lists and the index read only these, no body.
// state is the town's state in the record; nil if it has none.
func Headers(rec *Record, subject string, state *town.State) nats.Header {
	header := make(nats.Header, mostHeaders)
	values := make([]string, 0, mostHeaders) // one array for all
	set := func(name, value string) {
		if value != "" {
			values = append(values, value)
			header[name] = values[len(values)-1 : len(values) : len(values)]
		}
	}
	flag := func(name string, on bool) {
		if on {
			set(name, "true")
		}
	}
	if state != nil {
		if encoded := wire.PercentEncode(rec.TownID); len(encoded) <= maxTextHeader {
			set(wire.TownHeader, encoded)
		}
		set(wire.HashHeader, state.Hash)
		set(wire.EpochHeader, strconv.FormatInt(state.Epoch(), 10))
	}
	set(wire.KindHeader, string(rec.Kind))
	if token := wire.TokenOf(rec.TownID); !strings.HasSuffix(subject, "."+token) {
		set(wire.TownTokenHeader, token)
	}
	set(wire.ActorHeader, wire.PercentEncode(rec.ActorID))
	set(wire.ApplyHeader, string(rec.Apply))
	flag(wire.AskedHeader, rec.Approvals.AnyOpen())
	flag(wire.PendingHeader, rec.Pending != nil)
	flag(wire.PausedHeader, rec.Paused != nil)
	flag(wire.RemovedHeader, rec.Removed)
	flag(wire.ClosingHeader, rec.Closing)
	if rec.Mend != nil {
		set(wire.GapsHeader, gapsText(rec.Mend.Gaps))
	}
	flag(wire.InconsistentHeader, rec.Inconsistent)
	if rec.Result != nil {
		decision := rec.Decision
		if decision == nil {
			decision = new(handoff.Result)
			_ = json.Unmarshal(rec.Result, decision) // a damaged result sets neither header
		}
		if decision.IdempotencyKey != "" {
			set(wire.KeyHeader, decision.IdempotencyKey)
			set(wire.ResultHeader, string(decision.Status)+" "+string(decision.ReasonCode))
		}
	}
	if rec.Run != nil {
		describeRun(rec, set)
	}
	return header
}

// maxTextHeader bounds a header whose text a client chose, since NATS bounds all headers together.
// A longer text is in the record alone.
const maxTextHeader = 4096

// mostHeaders is the number of headers of a handoff's record, with wire.AtHeader.
const mostHeaders = 16

// describeRun sets the headers of the events in a record.
func describeRun(rec *Record, set func(name, value string)) {
	run := rec.Run
	set(wire.RunIDHeader, wire.PercentEncode(run.RunID))
	if len(run.Events) == 0 {
		return
	}
	set(wire.RunSeqsHeader,
		fmt.Sprintf("%d-%d", run.FirstSeq, run.FirstSeq+int64(len(run.Events))-1))
	if at := run.Events[0].EmittedAt; run.FirstSeq == 1 && len(at) <= maxTextHeader {
		set(wire.ArrivedHeader, at)
	}
	var moves []string
	for i := range run.Events {
		event := &run.Events[i]
		if event.EventType.Spec().Level == runevents.RunLevel {
			moves = append(moves, string(event.EventType))
		}
		if event.EventType != runevents.RunStarted && event.EventType != runevents.RunQueued {
			continue
		}
		var asked machine.Started
		if of := rec.Addition; of != nil {
			asked.ActorID, asked.Type = of.ActorID, string(of.ProposalType)
		} else if json.Unmarshal(event.Payload, &asked) != nil {
			continue
		}
		set(wire.ActorHeader, wire.ActorToken(asked.ActorID))
		if run.AppendedBy == "" {
			set(wire.TypeHeader, cmp.Or(asked.Type, asked.Signal))
		}
	}
	set(wire.RunMovesHeader, strings.Join(moves, ","))
}

// At returns when the append authority persisted a message of the log: the time in its header, or
// the stream's time if the header is damaged.
func At(msg *jetstream.RawStreamMsg) time.Time { return AtOr(msg.Header, msg.Time) }

// AtOr is At, by a message's headers and the time at which its stream stored it.
func AtOr(header nats.Header, stored time.Time) time.Time {
	if at, err := time.Parse(time.RFC3339, header.Get(wire.AtHeader)); err == nil {
		return at
	}
	return stored
}

// GuardOf returns the sequence that guarded the append of a message, by its headers; ok is false if
// it had no guard.
func GuardOf(header nats.Header) (guard uint64, ok bool) {
	guard, err := strconv.ParseUint(header.Get(jetstream.ExpectedLastSubjSeqHeader), 10, 64)
	return guard, err == nil
}

// stamp sets the persistedAt of a message before its append: the append authority's time, but never
// before the persistedAt of the town's or run's last message (RunEvents v2, section 2.3). A message
// that is appended again keeps its time.
func (l *Log) stamp(ctx context.Context, msg *nats.Msg) {
	if msg.Header.Get(wire.AtHeader) != "" {
		return
	}
	now := time.Now
	if l.Now != nil {
		now = l.Now
	}
	at := now()
	if l.LastAt != nil {
		if last := l.LastAt(ctx, msg.Subject, msg.Header); last.After(at) {
			at = last
		}
	}
	msg.Header[wire.AtHeader] = []string{runevents.Timestamp(at)}
}

// Gap is a part of a town's history that a repair gave up: the records behind the sequence After and
// before the sequence Before. They are lost, or are not the engine's.
type Gap = machine.Gap

// Gaps are the gaps of a town.
type Gaps []Gap

// gapsText writes gaps as wire.GapsHeader has them: "2-5,9-"; without a Before, the gap ends at the
// record that has it.
func gapsText(gaps []Gap) string {
	var text []string
	for _, g := range gaps {
		before := ""
		if g.Before > 0 {
			before = strconv.FormatUint(g.Before, 10)
		}
		text = append(text, strconv.FormatUint(g.After, 10)+"-"+before)
	}
	return strings.Join(text, ",")
}

// ReadGaps reads the text of wire.GapsHeader of a record at a sequence. It omits unreadable parts.
func ReadGaps(text string, seq uint64) (gaps Gaps) {
	for part := range strings.SplitSeq(text, ",") {
		first, last, _ := strings.Cut(part, "-")
		after, err := strconv.ParseUint(first, 10, 64)
		before, errLast := strconv.ParseUint(last, 10, 64)
		if last == "" {
			before, errLast = seq, nil
		}
		if err == nil && errLast == nil {
			gaps = append(gaps, Gap{After: after, Before: before})
		}
	}
	return gaps
}

// Has reports whether the record at a sequence was given up.
func (g Gaps) Has(seq uint64) bool {
	return slices.ContainsFunc(g, func(gap Gap) bool { return gap.After < seq && seq < gap.Before })
}

// Explain reports whether all records between two of the town, of which the log delivers the later
// one behind the earlier, were given up, or the later one itself.
func (g Gaps) Explain(earlier, later uint64) bool {
	return g.Has(later) || slices.ContainsFunc(g, func(gap Gap) bool {
		return gap.After <= earlier && later <= gap.Before
	})
}
