package memory_test

import (
	"bytes"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"unicode/utf16"

	"github.com/go-json-experiment/json"
	"github.com/stretchr/testify/require"

	"worldengine/dedupe"
	"worldengine/handoff"
	"worldengine/schemas"
	"worldengine/worldengine/internal/core/machine"
	"worldengine/worldengine/internal/core/machine/machinetest"
	"worldengine/worldengine/internal/core/town"
	"worldengine/worldengine/internal/core/town/towntest"
	"worldengine/worldengine/internal/store/commitlog/logtest"
	"worldengine/worldengine/internal/store/index/indextest"
	"worldengine/worldengine/internal/store/memory"
	"worldengine/worldengine/internal/store/records"
	"worldengine/worldengine/internal/testkit/natstest"
	"worldengine/worldengine/messages"
)

func TestMain(m *testing.M) { natstest.Main(m, 4) }

// townID is the town of the outcome table.
const townID = "town-threatened"

// world is a log whose towns have a memory.
type world struct {
	t      *testing.T
	log    *records.Log
	reader *memory.Reader
}

func newWorld(t *testing.T) *world {
	log := logtest.New(t)
	return &world{t, log, memory.NewReader(log, indextest.Open(t, log))}
}

// put puts a state of its town.
func (w *world) put(state town.State) {
	rec := &machine.Record{Kind: machine.KindPut, TownID: state.Snapshot.TownID}
	logtest.Commit(w.t, w.log, rec, logtest.WithState(state))
}

// judge commits a case of the outcome table.
func (w *world) judge(name string) {
	w.t.Helper()
	rec, after := logtest.Judged(w.t, machinetest.Named(w.t, name))
	logtest.Commit(w.t, w.log, rec, logtest.WithState(after))
}

// scope is the part of the world of a town, or all of it with "".
func scope(townID string, chronicle, results int) messages.MemoryScope {
	s := messages.MemoryScope{ChronicleLimit: chronicle, HistoryLimit: results}
	if townID != "" {
		s.TownID = &townID
	}
	return s
}

// memory returns a memory that agents accept. It is the same for an index that is made anew.
func (w *world) memory(s messages.MemoryScope, towns ...string) *messages.Memory {
	w.t.Helper()
	m, err := w.reader.Read(w.t.Context(), s, towns)
	require.NoError(w.t, err)
	data, err := json.Marshal(m)
	require.NoError(w.t, err)
	requireAccepted(w.t, data)
	appended := w.log.OnAppended
	rebuilt := memory.NewReader(w.log, indextest.Open(w.t, w.log))
	w.log.OnAppended = appended
	again, err := rebuilt.Read(w.t.Context(), s, towns)
	require.NoError(w.t, err)
	require.Equal(w.t, m, again)
	return m
}

// play commits the judgement of a handoff that is made of the state that a town has.
func (w *world) play(townID string, kind handoff.ProposalType, argument string) handoff.Status {
	w.t.Helper()
	now, err := w.log.Load(w.t.Context(), townID)
	require.NoError(w.t, err)
	return w.judged(now.State, now.State, kind, argument, nil)
}

// judged commits the judgement, in a state, of a handoff that is made of another one.
func (w *world) judged(
	seen, now town.State, kind handoff.ProposalType, argument string, prior *dedupe.Receipt,
) handoff.Status {
	w.t.Helper()
	p := handoff.Proposal{
		SnapshotHash: seen.Hash, DecisionEpoch: seen.Epoch(), Type: kind, ActorID: "mayor-1",
		TownID: seen.Snapshot.TownID, Priority: 0.5, Reason: "why",
		ReasonTags: []string{}, Args: map[string]string{kind.ArgumentName(): argument},
	}
	if argument == "nowhere" {
		p.Preconditions = kind.Preconditions(argument)
	}
	h, err := handoff.New(p)
	require.NoError(w.t, err)
	rec, after := logtest.Judged(w.t, &machinetest.Case{Handoff: h, Prior: prior, State: now})
	logtest.Commit(w.t, w.log, rec, logtest.WithState(after))
	var result struct {
		Status handoff.Status `json:"status"`
	}
	require.NoError(w.t, json.Unmarshal(rec.Result, &result))
	return result.Status
}

// all five statuses in a town on day 15, which is on day 16 after it.
func (w *world) statuses() {
	w.put(towntest.Threatened())
	before := towntest.Threatened()
	require.Equal(w.t, handoff.Executed, w.play(townID, handoff.AdvanceProject, "wall"))
	require.Equal(w.t, handoff.Failed, w.play(townID, handoff.AdvanceProject, "gate"))
	require.Equal(w.t, handoff.Rejected, w.play(townID, handoff.AdvanceProject, "nowhere"))
	now, err := w.log.Load(w.t.Context(), townID)
	require.NoError(w.t, err)
	require.Equal(w.t, handoff.Stale,
		w.judged(before, now.State, handoff.TalkToTownsfolk, "casual", nil))
	require.Equal(w.t, handoff.Duplicate, w.judged(before, now.State, handoff.AdvanceProject,
		"wall", &dedupe.Receipt{ResultID: "result_" + strings.Repeat("a", 64)}))
}

func TestRead_HasResultsOfEachStatus(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.statuses()
	m := w.memory(scope(townID, 5, 5))
	var got []string
	for _, r := range m.RecentHistory {
		got = append(got, fmt.Sprint(r.At, " ", r.Summary, " ", *r.Command, " ", len(r.AuthorityCommands)))
	}
	advance := "execution_receipt terminal_receipt PROJECT_ADVANCE "
	command := " town-threatened project advance town-threatened "
	require.Equal(t, []string{
		"16 execution_receipt terminal_receipt TOWNSFOLK_TALK stale STALE_DECISION_EPOCH " +
			"town-threatened townsfolk talk town-threatened casual 0",
		"16 " + advance + "rejected PRECONDITION_FAILED" + command + "nowhere 0",
		"16 " + advance + "failed PROJECT_BLOCKED" + command + "gate 0",
		"16 " + advance + "executed EXECUTED" + command + "wall 1",
		"0 " + advance + "duplicate IDEMPOTENCY_KEY_REUSED" + command + "wall 0",
	}, got)
	s := m.TownSummary
	require.Equal(t, messages.ExecutionCounts{Executed: 1, Rejected: 1, Stale: 1, Duplicate: 1,
		Failed: 1}, s.Counts)
	require.Equal(t, []int{1, 5, 1}, []int{s.ChronicleCount, s.HistoryCount, s.ActiveProjects})
	require.Equal(t, []float64{0.55, 0.25}, []float64{*s.Hope, *s.Dread})
	require.EqualValues(t, []int64{16, 16}, []int64{*s.LastChronicleAt, *s.LastHistoryAt})
	require.Nil(t, s.MissionID)

	require.Equal(t, m.RecentHistory[:2], w.memory(scope(townID, 1, 2)).RecentHistory)
}

// Each type of command has a sentence in the chronicle, and tags.
func TestRead_ChronicleTellsEachType(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.put(towntest.Threatened(func(s *town.Snapshot) {
		s.SideQuests = []town.SideQuest{{ID: "sq-1", Title: "Scout the northern ridge"},
			{ID: "sq-2", Title: "Mend \t the\nroad"}}
		s.Projects[1].Name, s.Projects[1].Progress = "The Perimeter Wall", 0.8
	}))
	want := []string{
		"mayor-1 accepted the mission Scout the northern ridge. [mission accept]",
		"The mission Scout the northern ridge is complete. [mission complete]",
		"mayor-1 accepted the mission Mend the road. [mission accept]",
		"The mission Mend the road has failed. [mission fail]",
		"mayor-1 advanced the Perimeter Wall. [project advance]",
		"The Perimeter Wall is complete. [project advance complete]",
		"mayor-1 began a dread salvage. [salvage initiate dread]",
		"mayor-1 gave the townsfolk a morale-boost talk. [townsfolk talk morale-boost]",
	}
	var got []string
	for i, c := range []struct {
		kind     handoff.ProposalType
		argument string
	}{
		{handoff.AcceptMission, "sq-1"}, {handoff.CompleteMission, "sq-1"},
		{handoff.AcceptMission, "sq-2"}, {handoff.FailMission, "sq-2"},
		{handoff.AdvanceProject, "wall"}, {handoff.AdvanceProject, "wall"},
		{handoff.PlanSalvage, "dread"}, {handoff.TalkToTownsfolk, "morale-boost"},
	} {
		require.Equal(t, handoff.Executed, w.play(townID, c.kind, c.argument))
		m := w.memory(scope(townID, 5, 1))
		require.Len(t, m.RecentChronicle, min(i+1, 5))
		e := m.RecentChronicle[0]
		require.Equal(t, e.Tags[0], e.EntryType)
		require.EqualValues(t, 16+i, e.At)
		got = append(got, fmt.Sprint(e.Message, " ", e.Tags))
	}
	require.Equal(t, want, got)
}

// Duplicates have no epoch, and the results of an epoch are sorted by type, status and id.
func TestRead_History_IsSortedByEpoch(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.statuses()
	now, err := w.log.Load(t.Context(), townID)
	require.NoError(t, err)
	for i := range 40 { // a stuck agent
		w.judged(now.State, now.State, handoff.TalkToTownsfolk, "casual",
			&dedupe.Receipt{ResultID: fmt.Sprintf("result_%064d", i)})
	}
	m := w.memory(scope(townID, 1, 5))
	require.Equal(t, handoff.Executed, m.RecentHistory[3].Status)
	require.Equal(t, handoff.Duplicate, m.RecentHistory[4].Status)
	require.Equal(t, 41, m.TownSummary.Counts.Duplicate)
	w.play(townID, handoff.TalkToTownsfolk, "casual")
	m = w.memory(scope(townID, 1, 1))
	require.EqualValues(t, 17, m.RecentHistory[0].At)
}

// Every valid handoff has its place, however its agent writes integers.
func TestRead_HasHandoffWithIntegersAsDecimals(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.put(towntest.Threatened())
	c := machinetest.Case{Handoff: machinetest.Advance(t, "wall"), State: towntest.Threatened()}
	rec, after := logtest.Judged(t, &c)
	rec.Handoff = bytes.ReplaceAll(rec.Handoff, []byte(`"decisionEpoch":15`),
		[]byte(`"decisionEpoch":15.0`))
	_, err := handoff.Parse(rec.Handoff, schemas.Limits{})
	require.NoError(t, err)
	logtest.Commit(t, w.log, rec, logtest.WithState(after))
	m := w.memory(scope(townID, 5, 5))
	require.Len(t, m.RecentHistory, 1)
	require.Len(t, m.RecentChronicle, 1)
	require.Equal(t, c.Handoff.Command, *m.RecentHistory[0].Command)
}

// Counts are of the messages that the log keeps: 100 of a subject here.
func TestRead_ForgetsWithTheLog(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.put(towntest.Threatened())
	for i := range 105 {
		require.Equal(t, handoff.Executed, w.play(townID, handoff.TalkToTownsfolk, "casual"), i)
	}
	for range 3 {
		w.play(townID, handoff.AdvanceProject, "nowhere")
	}
	s := w.memory(scope(townID, 5, 5)).TownSummary
	require.Equal(t, []int{100, 103, 3}, []int{s.ChronicleCount, s.HistoryCount, s.Counts.Rejected})
}

// Without a town the memory has the results that the log stored last, of the towns that may be read.
func TestRead_OfWorld(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	require.Empty(t, w.memory(scope("", 5, 5)).RecentHistory, "of an empty log")
	w.statuses()
	young := town.NewState(&town.Snapshot{SchemaVersion: town.SchemaVersion, TownID: " a town "})
	w.put(young)
	w.play(" a town ", handoff.TalkToTownsfolk, "casual")
	w.judge("rejected-unknown-town")

	m := w.memory(scope("", 2, 1))
	require.Nil(t, m.TownSummary)
	require.Equal(t, "mayor-1 gave the townsfolk a casual talk.", m.RecentChronicle[1].Message)
	require.Equal(t, "a town", *m.RecentChronicle[1].TownID)
	require.EqualValues(t, 16, m.RecentChronicle[0].At)
	require.Len(t, w.memory(scope("", 5, 5)).RecentHistory, 5)
	require.Len(t, w.memory(scope("", 5, 5), townID).RecentChronicle, 1)
	none, err := w.reader.Read(t.Context(), scope("", 5, 5), []string{})
	require.NoError(t, err)
	require.Empty(t, none.RecentHistory)
}

func TestRead_UnknownTown(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.judge("rejected-unknown-town")
	for _, id := range []string{townID, "nowhere"} {
		_, err := w.reader.Read(t.Context(), scope(id, 1, 1), nil)
		require.ErrorIs(t, err, town.ErrUnknown)
	}
}

// Records that cannot be read are left out.
func TestRead_LeavesOutDamage(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.statuses()
	rec := &machine.Record{Kind: machine.KindConcluded, TownID: townID,
		Result: []byte(`{"idempotencyKey":"k","status":"executed","reasonCode":"EXECUTED"}`)}
	logtest.Commit(t, w.log, rec)
	m := w.memory(scope(townID, 5, 5))
	require.Len(t, m.RecentChronicle, 1)
	require.Len(t, m.RecentHistory, 5)
}

// Agents accept each memory, whatever the texts of a town are.
func TestRead_AgentsAcceptAny(t *testing.T) {
	t.Parallel()
	for seed := range uint64(6) {
		t.Run(fmt.Sprint(seed), func(t *testing.T) {
			t.Parallel()
			g := rand.New(rand.NewPCG(seed, 34))
			texts := []string{"a", " x ", "\ufeffb\u00a0", strings.Repeat("long ", 70),
				strings.Repeat("🏰", 250), "the \t", "\u0085", "{title}", "\u0301"}
			text := func() string { return texts[g.IntN(len(texts))] }
			w, ids := newWorld(t), []string{text(), "t"}
			for _, id := range ids {
				w.put(town.NewState(&town.Snapshot{SchemaVersion: town.SchemaVersion, TownID: id,
					SideQuests: []town.SideQuest{{ID: text(), Title: text()}},
					Projects: []town.Project{{ID: text(), Name: text(), Status: town.Planning,
						Progress: 0.85}}}))
			}
			for range 30 {
				id := ids[g.IntN(len(ids))]
				now, err := w.log.Load(t.Context(), id)
				require.NoError(t, err)
				kind := handoff.ProposalTypes()[g.IntN(len(handoff.ProposalTypes()))]
				argument := text()
				if may := now.State.Snapshot.Arguments(kind); len(may) > 0 && g.IntN(5) > 0 {
					argument = may[g.IntN(len(may))]
				} else if kind.Spec().Values != nil {
					argument = kind.Spec().Values[0]
				}
				w.play(id, kind, argument)
			}
			for _, id := range append(ids, "") {
				w.memory(scope(id, 1+g.IntN(5), 1+g.IntN(5)))
			}
		})
	}
}

// requireAccepted asserts the rules of the agents' validator for a memory.
func requireAccepted(t *testing.T, data []byte) {
	t.Helper()
	_, err := schemas.Parse(schemas.MemoryContext, data, schemas.Limits{})
	require.NoError(t, err, "%s", data)
	var m map[string]any
	require.NoError(t, json.Unmarshal(data, &m))
	scope := m["scope"].(map[string]any)
	list := func(name string) (entries []map[string]any) {
		for _, e := range m[name].([]any) {
			entries = append(entries, e.(map[string]any))
		}
		require.LessOrEqual(t, float64(len(entries)),
			scope[strings.ToLower(strings.TrimPrefix(name, "recent"))+"Limit"])
		return entries
	}
	results, chronicle := list("recentHistory"), list("recentChronicle")
	requireSorted(t, results, func(e map[string]any) string {
		var parts []string
		for _, name := range []string{"sourceType", "kind", "proposalType", "status", "handoffId"} {
			part, _ := e[name].(string)
			parts = append(parts, part)
		}
		return strings.Join(parts, ":")
	})
	requireSorted(t, chronicle, func(e map[string]any) string { return e["sourceRecordId"].(string) })
	lengths := map[string]int{"command": 240, "summary": 320, "townId": 80, "handoffId": 200,
		"message": 240, "sourceRefId": 200}
	for _, e := range append(results, chronicle...) {
		for name, v := range e {
			most, known := lengths[name]
			if !known {
				most = 80
			}
			requireTexts(t, v, name, most)
		}
	}
	if summary, ok := m["townSummary"].(map[string]any); ok {
		for name, v := range summary {
			requireTexts(t, v, name, 200)
		}
	}
}

// requireTexts asserts that texts are trimmed, not blank, not too long, and different in a list.
func requireTexts(t *testing.T, v any, name string, most int) {
	t.Helper()
	const space = "\t\n\v\f\r \u00a0\u1680\u2000\u2001\u2002\u2003\u2004\u2005\u2006\u2007" +
		"\u2008\u2009\u200a\u2028\u2029\u202f\u205f\u3000\ufeff"
	switch v := v.(type) {
	case string:
		require.Equal(t, strings.Trim(v, space), v, name)
		require.NotEmpty(t, v, name)
		require.LessOrEqual(t, len(utf16.Encode([]rune(v))), most, name)
	case []any:
		for i, element := range v {
			if name == "authorityCommands" {
				most = 240
			}
			requireTexts(t, element, name, most)
			require.NotContains(t, v[:i], element, name)
		}
	}
}

// requireSorted asserts that entries are sorted by at, then by a text, both descending.
func requireSorted(t *testing.T, entries []map[string]any, by func(map[string]any) string) {
	t.Helper()
	require.True(t, slices.IsSortedFunc(entries, func(a, b map[string]any) int {
		if x, y := a["at"].(float64), b["at"].(float64); x != y {
			return int(y - x)
		}
		return town.Compare(by(b), by(a))
	}), "%v", entries)
}
