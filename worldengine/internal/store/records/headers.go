package records

import (
	"cmp"
	"fmt"
	"slices"
	"strconv"
	"strings"

	"github.com/go-json-experiment/json"
	"github.com/nats-io/nats.go"

	"worldengine/handoff"
	"worldengine/runevents"
	"worldengine/worldengine/internal/core/machine"
	"worldengine/worldengine/internal/core/town"
	"worldengine/worldengine/internal/kit/layout"
	"worldengine/worldengine/internal/kit/percent"
	"worldengine/worldengine/wire"
)

// Headers returns the headers of a record's message. Lists and the index read only these, no body.
// state is the town's state in the record; nil if it has none.
func Headers(rec *machine.Record, subject string, state *town.State) nats.Header {
	header := make(nats.Header, maxHeaders)
	values := make([]string, 0, maxHeaders) // one array for all
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
		if encoded := percent.Encode(rec.TownID); len(encoded) <= maxTextHeader {
			set(layout.TownHeader, encoded)
		}
		set(layout.HashHeader, state.Hash)
		set(layout.EpochHeader, strconv.FormatInt(state.Epoch(), 10))
	}
	set(layout.KindHeader, string(rec.Kind))
	if token := layout.TokenOf(rec.TownID); !strings.HasSuffix(subject, "."+token) {
		set(layout.TownTokenHeader, token)
	}
	set(layout.ActorHeader, percent.Encode(rec.ActorID))
	set(layout.ApplyHeader, string(rec.Binding))
	flag(layout.AskedHeader, rec.Approvals.AnyOpen())
	flag(layout.PendingHeader, rec.Pending != nil)
	flag(layout.PausedHeader, rec.Paused != nil)
	flag(layout.RemovedHeader, rec.Removed)
	flag(layout.ClosingHeader, rec.Closing)
	if rec.Repair != nil {
		set(layout.GapsHeader, gapsText(rec.Repair.Gaps))
	}
	flag(layout.InconsistentHeader, rec.Inconsistent)
	if rec.Result != nil {
		decision := rec.DecodedResult
		if decision == nil {
			decision = new(handoff.Result)
			_ = json.Unmarshal(rec.Result, decision) // a damaged result sets neither header
		}
		if decision.IdempotencyKey != "" {
			set(layout.KeyHeader, decision.IdempotencyKey)
			set(layout.ResultHeader, string(decision.Status)+" "+string(decision.ReasonCode))
		}
	}
	if rec.Run != nil {
		setRunHeaders(rec, set)
	}
	return header
}

// KindOf returns the kind of a message's record; "" if the message has none.
func KindOf(header nats.Header) machine.Kind { return machine.Kind(header.Get(layout.KindHeader)) }

// maxTextHeader bounds a header whose text a client chose, since NATS bounds all headers together.
// A longer text is in the record alone.
const maxTextHeader = 4096

// maxHeaders is the number of headers of a handoff's record, with those that an append adds.
const maxHeaders = 17

// setRunHeaders sets the headers of the events in a record.
func setRunHeaders(rec *machine.Record, set func(name, value string)) {
	run := rec.Run
	set(wire.RunIDHeader, percent.Encode(run.RunID))
	if len(run.Events) == 0 {
		return
	}
	set(layout.RunSeqsHeader,
		fmt.Sprintf("%d-%d", run.FirstSeq, run.FirstSeq+int64(len(run.Events))-1))
	if at := run.Events[0].EmittedAt; run.FirstSeq == 1 && len(at) <= maxTextHeader {
		set(layout.ArrivedHeader, at)
	}
	var types []string
	for i := range run.Events {
		event := &run.Events[i]
		if event.EventType.Spec().Level == runevents.RunLevel {
			types = append(types, string(event.EventType))
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
		set(layout.ActorHeader, layout.ActorToken(asked.ActorID))
		if run.AppendedBy == "" {
			set(layout.TypeHeader, cmp.Or(asked.Type, asked.Signal))
		}
	}
	set(layout.RunEventTypesHeader, strings.Join(types, ","))
}

// Gaps are the gaps of a town.
type Gaps []machine.Gap

// gapsText writes gaps as layout.GapsHeader has them: "2-5,9-"; without a Before, the gap ends at the
// record that has it.
func gapsText(gaps []machine.Gap) string {
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

// ReadGaps reads the text of layout.GapsHeader of a record at a sequence. It omits unreadable parts.
func ReadGaps(text string, seq uint64) (gaps Gaps) {
	for part := range strings.SplitSeq(text, ",") {
		first, last, _ := strings.Cut(part, "-")
		after, err := strconv.ParseUint(first, 10, 64)
		before, errLast := strconv.ParseUint(last, 10, 64)
		if last == "" {
			before, errLast = seq, nil
		}
		if err == nil && errLast == nil {
			gaps = append(gaps, machine.Gap{After: after, Before: before})
		}
	}
	return gaps
}

// Has reports whether the record at a sequence was given up.
func (g Gaps) Has(seq uint64) bool {
	return slices.ContainsFunc(g, func(gap machine.Gap) bool { return gap.After < seq && seq < gap.Before })
}

// Cover reports whether all records between two of the town, of which the log delivers the later
// one behind the earlier, were given up, or the later one itself.
func (g Gaps) Cover(earlier, later uint64) bool {
	return g.Has(later) || slices.ContainsFunc(g, func(gap machine.Gap) bool {
		return gap.After <= earlier && later <= gap.Before
	})
}
