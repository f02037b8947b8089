// Package memory reads, for agents, what happened lately in a town or in the world: the last results,
// and a chronicle of the executed ones. It stores nothing.
package memory

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"strings"
	"time"
	"unicode"
	"unicode/utf16"

	"github.com/go-json-experiment/json"
	"github.com/nats-io/nats.go/jetstream"

	"worldengine/handoff"
	"worldengine/worldengine/internal/core/machine"
	"worldengine/worldengine/internal/core/town"
	"worldengine/worldengine/internal/kit/layout"
	"worldengine/worldengine/internal/kit/recent"
	"worldengine/worldengine/internal/store/index"
	"worldengine/worldengine/internal/store/records"
	"worldengine/worldengine/messages"
	"worldengine/worldengine/wire"
)

// The two constant members of a result in a memory.
const (
	sourceType = "execution_receipt"
	resultKind = "terminal_receipt"
)

// The longest texts of a memory, in UTF-16 code units as JavaScript counts them.
const (
	maxCommand = 240
	maxMessage = 240
	maxSummary = 320
	maxHandoff = 200
	maxText    = 80
)

// maxResultsRead bounds the newest results from which one list of a memory is chosen.
const maxResultsRead = 16

// readTimeout bounds one reading of a memory.
const readTimeout = 10 * time.Second

// maxCachedResults bounds the results that a Reader keeps in memory, some 2 KB each.
const maxCachedResults = 1024

// Reader reads the memory of the towns of a log. It is safe for concurrent use.
type Reader struct {
	log   *records.Log
	index *index.Index
	cache *recent.Map[uint64, *storedResult] // by log sequence
}

// NewReader returns a reader of a log with its index.
func NewReader(log *records.Log, x *index.Index) *Reader {
	return &Reader{log: log, index: x, cache: recent.NewMap[uint64, *storedResult](maxCachedResults)}
}

// Read returns the memory of the scope's town. If the scope names no town, Read returns the
// memory of towns, or of all towns if towns is nil. The memory depends on the log alone. The error
// is town.ErrUnknown, index.ErrBehind or commitlog.ErrLogUnavailable.
//
// The results of one town are chosen and sorted by their epochs. Epochs of different towns cannot
// be compared, so of several towns the results that the log stored last are chosen. Duplicates have
// no epoch, and only fill a list that has room.
func (r *Reader) Read(
	ctx context.Context, scope messages.MemoryScope, towns []string,
) (*messages.Memory, error) {
	ctx, cancel := context.WithTimeout(ctx, readTimeout)
	defer cancel()
	if _, err := r.index.CatchUp(ctx); err != nil {
		return nil, err
	}
	m := &messages.Memory{Type: messages.MemoryContextType, SchemaVersion: 1, Scope: scope,
		RecentChronicle: []messages.MemoryEntry{}, RecentHistory: []messages.MemoryResult{}}
	var found index.Results
	var err error
	if scope.TownID != nil {
		found, m.TownSummary, err = r.summary(ctx, *scope.TownID)
	} else {
		found = r.index.Results(layout.TownTokens(towns), index.FirstKept{}, maxResultsRead)
	}
	if err != nil {
		return nil, err
	}
	if err := r.fillHistory(ctx, m, &found); err != nil {
		return nil, err
	}
	if err := r.fillChronicle(ctx, m, &found); err != nil {
		return nil, err
	}
	if s := m.TownSummary; s != nil {
		if len(m.RecentChronicle) > 0 {
			s.LastChronicleAt = &m.RecentChronicle[0].At
		}
		if len(m.RecentHistory) > 0 {
			s.LastHistoryAt = &m.RecentHistory[0].At
		}
	}
	return m, nil
}

// summary returns a town's results, and its summary without the times of the lists.
func (r *Reader) summary(
	ctx context.Context, townID string,
) (found index.Results, summary *messages.MemorySummary, err error) {
	entry, err := r.log.Load(ctx, townID)
	if err == nil && !entry.State.Exists() {
		err = fmt.Errorf("%w: %q", town.ErrUnknown, townID)
	}
	if err != nil {
		return found, nil, err
	}
	token, kept := wire.TownToken(townID), index.FirstKept{}
	for subject, seq := range map[string]*uint64{
		layout.LogSubject(r.log.World, token):     &kept.Log,
		layout.RefusedSubject(r.log.World, token): &kept.Refused,
	} {
		msg, err := r.log.Next(ctx, subject, 1)
		if err != nil {
			return found, nil, err
		}
		if msg != nil {
			*seq = msg.Sequence
		}
	}
	found = r.index.Results([]string{token}, kept, maxResultsRead)
	return found, summaryOf(entry.State.Snapshot, found.Counts), nil
}

func summaryOf(now *town.Snapshot, counts map[string]int) *messages.MemorySummary {
	s := &messages.MemorySummary{Type: messages.MemorySummaryType, SchemaVersion: 1, Factions: []string{}}
	s.TownID = truncated(now.TownID, maxText)
	s.Hope, s.Dread = &now.Pressure.Hope, &now.Pressure.Dread
	if now.Mission != nil {
		s.MissionID = truncated(now.Mission.ID, maxHandoff)
	}
	for i := range now.Projects {
		if now.Projects[i].Status == town.Active {
			s.ActiveProjects++
		}
	}
	of := func(status handoff.Status) int { return counts[string(status)] }
	s.Counts = messages.ExecutionCounts{
		Executed: of(handoff.Executed), Rejected: of(handoff.Rejected), Stale: of(handoff.Stale),
		Duplicate: of(handoff.Duplicate), Failed: of(handoff.Failed),
	}
	s.ChronicleCount = s.Counts.Executed
	for _, status := range handoff.Statuses() {
		s.HistoryCount += of(status)
	}
	return s
}

// storedResult is a result that was read: an entry of the history and, if it was executed, of the
// chronicle.
type storedResult struct {
	result messages.MemoryResult
	entry  messages.MemoryEntry
}

func (r *Reader) fillHistory(ctx context.Context, m *messages.Memory, found *index.Results) error {
	var seqs []uint64
	for status, newest := range found.Newest {
		if status != string(handoff.Duplicate) {
			seqs = append(seqs, newest...)
		}
	}
	slices.Sort(seqs)
	slices.Reverse(seqs)
	chosen, err := r.readNewest(ctx, m, seqs, m.Scope.HistoryLimit)
	if room := m.Scope.HistoryLimit - len(chosen); err == nil && room > 0 {
		var rest []*storedResult
		rest, err = r.readNewest(ctx, m, found.Newest[string(handoff.Duplicate)], room)
		chosen = append(chosen, rest...)
	}
	if err != nil {
		return err
	}
	slices.SortStableFunc(chosen, func(a, b *storedResult) int {
		return cmp.Or(cmp.Compare(b.result.At, a.result.At), town.Compare(sortKey(b), sortKey(a)))
	})
	for _, t := range chosen[:min(len(chosen), m.Scope.HistoryLimit)] {
		m.RecentHistory = append(m.RecentHistory, t.result)
	}
	return nil
}

// sortKey is the text by which results of one epoch are sorted.
func sortKey(t *storedResult) string {
	r := &t.result
	return strings.Join([]string{r.SourceType, r.Kind, orEmpty(r.ProposalType), string(r.Status),
		orEmpty(r.HandoffID)}, ":")
}

func (r *Reader) fillChronicle(ctx context.Context, m *messages.Memory, found *index.Results) error {
	chosen, err := r.readNewest(ctx, m, found.Newest[string(handoff.Executed)], m.Scope.ChronicleLimit)
	if err != nil {
		return err
	}
	slices.SortStableFunc(chosen, func(a, b *storedResult) int {
		return cmp.Or(cmp.Compare(b.entry.At, a.entry.At),
			town.Compare(b.entry.RunID, a.entry.RunID))
	})
	for _, t := range chosen[:min(len(chosen), m.Scope.ChronicleLimit)] {
		m.RecentChronicle = append(m.RecentChronicle, t.entry)
	}
	return nil
}

// readNewest reads up to limit results for a memory, the newest first. If the memory is of one
// town, it also reads the next results with the last one's epoch. It omits damaged results, and
// results that the log no longer keeps.
func (r *Reader) readNewest(
	ctx context.Context, m *messages.Memory, seqs []uint64, limit int,
) (chosen []*storedResult, err error) {
	for _, seq := range seqs[:min(len(seqs), maxResultsRead)] {
		if m.Scope.TownID == nil && len(chosen) >= limit {
			break
		}
		t, err := r.resultAt(ctx, seq)
		if err != nil {
			return nil, err
		}
		if t == nil {
			continue
		}
		if len(chosen) >= limit && t.result.At < chosen[limit-1].result.At {
			break
		}
		chosen = append(chosen, t)
	}
	return chosen, nil
}

// resultAt reads the result at a sequence; nil if none can be read.
func (r *Reader) resultAt(ctx context.Context, seq uint64) (*storedResult, error) {
	if t, known := r.cache.Get(seq); known {
		return t, nil
	}
	msg, err := r.log.At(ctx, seq)
	if msg == nil || err != nil {
		return nil, err
	}
	t, err := r.readResult(ctx, msg)
	if t != nil && err == nil {
		r.cache.Add(seq, t)
	}
	return t, err
}

// readResult returns the result in a message; nil if none can be read.
func (r *Reader) readResult(ctx context.Context, msg *jetstream.RawStreamMsg) (*storedResult, error) {
	rec, err := records.Read(msg.Data)
	var result handoff.Result
	var asked struct { // without numbers, which agents may write as 15.0
		Proposal struct {
			Type    handoff.ProposalType `json:"type"`
			ActorID string               `json:"actorId"`
			Args    map[string]string    `json:"args"`
		} `json:"proposal"`
	}
	if err != nil || rec.Run == nil || json.Unmarshal(rec.Result, &result) != nil ||
		json.Unmarshal(rec.Handoff, &asked) != nil {
		return nil, nil
	}
	p := handoff.Proposal{
		Type: asked.Proposal.Type, ActorID: asked.Proposal.ActorID, Args: asked.Proposal.Args,
	}
	t := &storedResult{result: resultOf(rec.TownID, &result, &p)}
	if !result.Executed {
		return t, nil
	}
	title, complete, err := r.title(ctx, msg, rec, &p)
	t.entry = entryOf(&p, title, complete)
	t.entry.RunID, t.entry.At = rec.Run.RunID, t.result.At
	t.entry.TownID, t.entry.HandoffID = t.result.TownID, t.result.HandoffID
	return t, err
}

func resultOf(townID string, r *handoff.Result, p *handoff.Proposal) messages.MemoryResult {
	m := messages.MemoryResult{
		SourceType: sourceType, Kind: resultKind, Status: r.Status, ReasonCode: r.ReasonCode,
		HandoffID: truncated(r.HandoffID, maxHandoff), ProposalType: truncated(string(p.Type), maxText),
		Command: truncated(r.Command, maxCommand), AuthorityCommands: []string{},
		TownID: truncated(townID, maxText),
	}
	if r.Executed && m.Command != nil {
		m.AuthorityCommands = append(m.AuthorityCommands, *m.Command)
	}
	at := r.Evaluation.StaleCheck.ActualDecisionEpoch
	if r.WorldState != nil && r.WorldState.DecisionEpoch != nil {
		at = r.WorldState.DecisionEpoch
	}
	if at != nil {
		m.At = *at
	}
	m.Summary = orEmpty(truncated(strings.Join([]string{sourceType, resultKind, string(p.Type),
		string(r.Status), string(r.ReasonCode), orEmpty(m.TownID)}, " "), maxSummary))
	return m
}

// title returns the name of the project or mission that a command is about, or else its argument.
// complete is set if the command completed a project.
func (r *Reader) title(
	ctx context.Context, msg *jetstream.RawStreamMsg, rec *machine.Record, p *handoff.Proposal,
) (title string, complete bool, err error) {
	snapshot, target := rec.Snapshot, p.Type.Spec().Target
	if target == handoff.ActiveMission { // the command removed the mission
		prior, err := r.log.Previous(ctx, msg)
		if err != nil {
			return "", false, err
		}
		if prior != nil {
			if before, err := records.Read(prior.Data); err == nil {
				snapshot = before.Snapshot
			}
		}
	}
	title = p.Argument()
	var s town.Snapshot
	if json.Unmarshal(snapshot, &s) != nil {
		return title, false, nil
	}
	if target == handoff.Project {
		for i := range s.Projects {
			if s.Projects[i].ID == p.Argument() {
				return s.Projects[i].Name, s.Projects[i].Status == town.Complete, nil
			}
		}
	} else if s.Mission != nil && s.Mission.ID == p.Argument() {
		title = s.Mission.Title
	}
	return title, false, nil
}

// entryOf returns the entry of the chronicle about an executed command.
func entryOf(p *handoff.Proposal, title string, complete bool) messages.MemoryEntry {
	spec := p.Type.Spec()
	story := cmp.Or(spec.Story, "{actor} had a command executed.") // a newer server's command
	tags := strings.Fields(cmp.Or(spec.Verb, "command"))
	if complete {
		story, tags = "The {title} is complete.", append(tags, "complete")
	}
	if spec.Values != nil {
		tags = append(tags, p.Argument())
	}
	if strings.HasPrefix(strings.ToLower(title), "the ") {
		title = title[len("the "):]
	}
	said := strings.NewReplacer("{actor}", p.ActorID, "{title}", title,
		"{argument}", p.Argument()).Replace(story)
	return messages.MemoryEntry{
		EntryType: tags[0], Message: orEmpty(truncated(strings.Join(strings.Fields(said), " "), maxMessage)),
		Tags: tags,
	}
}

// truncated trims s and cuts it to limit UTF-16 code units, as JavaScript does; nil if nothing is left.
func truncated(s string, limit int) *string {
	space := func(r rune) bool { // space in JavaScript
		return r >= '\t' && r <= '\r' || unicode.Is(unicode.Z, r) || r == '\uFEFF'
	}
	s = strings.TrimFunc(s, space)
	length := 0
	for i, r := range s {
		if length += utf16.RuneLen(r); length > limit {
			s = strings.TrimRightFunc(s[:i], space)
			break
		}
	}
	if s == "" {
		return nil
	}
	return &s
}

func orEmpty(s *string) string {
	if s == nil {
		return ""
	}
	return *s
}
