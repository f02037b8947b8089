package approvals

import (
	"context"
	"fmt"
	"log/slog"
	"strings"
	"testing"
	"time"

	"github.com/go-json-experiment/json"
	"github.com/google/uuid"
	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
	"github.com/stretchr/testify/require"

	"worldengine/handoff"
	"worldengine/runevents"
	"worldengine/schemas"
	"worldengine/trace"
	"worldengine/worldengine/internal/core/approval"
	"worldengine/worldengine/internal/core/machine"
	"worldengine/worldengine/internal/core/runlog"
	"worldengine/worldengine/internal/core/town"
	"worldengine/worldengine/internal/core/town/towntest"
	"worldengine/worldengine/internal/kit/layout"
	"worldengine/worldengine/internal/store/commitlog"
	"worldengine/worldengine/internal/store/commitlog/logtest"
	"worldengine/worldengine/internal/store/index/indextest"
	"worldengine/worldengine/internal/store/records"
	"worldengine/worldengine/internal/store/worldsettings"
	"worldengine/worldengine/internal/testkit/natstest"
	"worldengine/worldengine/messages"
)

func TestMain(m *testing.M) { natstest.Main(m, 4) }

var noon = time.Date(2026, 2, 16, 12, 0, 0, 0, time.UTC)

// asking is a world in which proposals wait. It is noon there until a test says otherwise.
type asking struct {
	*Reader
	t   *testing.T
	now time.Time
	log *natstest.Buffer
}

// newAsking returns a world in which TOWNSFOLK_TALK and PROJECT_ADVANCE take an approval.
func newAsking(t *testing.T) *asking {
	t.Helper()
	policy, err := approval.Parse("TOWNSFOLK_TALK,PROJECT_ADVANCE")
	require.NoError(t, err)
	rules := town.DefaultRules()
	a := &asking{t: t, now: noon, log: &natstest.Buffer{}}
	l := logtest.New(t)
	a.Reader = &Reader{
		Log: l, Index: indextest.Open(t, l), Rules: &rules, Default: policy,
		Now:    func() time.Time { return a.now },
		Logger: slog.New(slog.NewTextHandler(a.log, nil)),
	}
	return a
}

// townState returns the state of a town.
func townState(townID string, change ...func(*town.Snapshot)) town.State {
	return towntest.Threatened(append(change,
		func(s *town.Snapshot) { s.TownID = townID })...)
}

// ask commits that a proposal for a town waits from now on, for an hour. It makes a missing town.
func (a *asking) ask(townID string, kind handoff.ProposalType, argument string) *handoff.Handoff {
	a.t.Helper()
	state := townState(townID)
	h := towntest.Propose(a.t, state, kind, argument)
	encoded, err := h.MarshalWire()
	require.NoError(a.t, err)
	logtest.Commit(a.t, a.Log, &machine.Record{Kind: machine.KindAsked, TownID: townID,
		Run: &runlog.Run{Identity: runevents.Identity{RunID: runOf(h)}, FirstSeq: 1}},
		func(e *machine.Town) {
			if e.Seq == 0 {
				e.State = state
			}
			e.Approvals = e.Approvals.Add(h, encoded, trace.Context{}, a.now, time.Hour)
		})
	return h
}

// runOf returns the run of a handoff that ask commits.
func runOf(h *handoff.Handoff) string { return "run-of-" + h.HandoffID[len(h.HandoffID)-16:] }

func (a *asking) talk(townID string) *handoff.Handoff {
	return a.ask(townID, handoff.TalkToTownsfolk, "casual")
}

// all accepts every town.
func all(string) bool { return true }

// list returns the rows of all towns behind a place.
func (a *asking) list(after string) []*messages.Approval {
	a.t.Helper()
	page, err := a.List(a.t.Context(), "", after, 100, 1<<20, all)
	require.NoError(a.t, err)
	require.Empty(a.t, page.Next)
	return page.Approvals
}

// townsOf returns the towns of rows.
func townsOf(rows []*messages.Approval) []string {
	ids := []string{}
	for _, row := range rows {
		ids = append(ids, row.TownID)
	}
	return ids
}

// A row has the proposal, and the changes that the rules expect of it.
func TestList_Row(t *testing.T) {
	t.Parallel()
	a := newAsking(t)
	wall := a.ask("t", handoff.AdvanceProject, "wall")
	a.now = a.now.Add(time.Second)
	gate := a.ask("t", handoff.AdvanceProject, "gate")
	rows := a.list("")
	require.Len(t, rows, 2)

	row := rows[0]
	require.Equal(t, []string{"t", wall.HandoffID, wall.Command, "waiting"},
		[]string{row.TownID, row.HandoffID, row.Command, string(row.Status)})
	require.Equal(t, []string{"2026-02-16T12:00:00.000Z", "2026-02-16T13:00:00.000Z"},
		[]string{row.At, row.Expires})
	require.Contains(t, string(row.Proposal), `"reason":"Because."`)
	require.Empty(t, row.DecidedBy+row.DecidedAt+row.Reason)
	require.Empty(t, row.ExpectedFailure)
	paths := map[string]string{}
	for _, c := range row.Expected {
		paths[c.Path] = string(c.From) + " " + string(c.To)
	}
	require.Equal(t, "15 16", paths["/day"])
	require.Contains(t, paths["/projects/1/progress"], "0.4 ")

	row = rows[1]
	require.Equal(t, gate.HandoffID, row.HandoffID)
	require.Equal(t, handoff.ReasonCode("PROJECT_BLOCKED"), row.ExpectedFailure)
	require.NotNil(t, row.Expected)
	require.Empty(t, row.Expected)
}

// A row has the run that asked, even if the town has forgotten later ones that failed.
func TestList_RunBehindForgottenProposals(t *testing.T) {
	t.Parallel()
	a := newAsking(t)
	first := a.talk("t")
	for i := range 20 {
		a.now = a.now.Add(time.Second)
		h := a.ask("t", handoff.AdvanceProject, fmt.Sprintf("project-%d", i))
		logtest.Commit(t, a.Log, &machine.Record{Kind: machine.KindPut, TownID: "t"},
			func(e *machine.Town) {
				encoded := e.Approvals[len(e.Approvals)-1].Handoff
				e.Approvals = e.Approvals.MarkUsed(h, encoded, runOf(h)).CloseStale(e.State.Hash)
			})
	}
	rows := a.list("")
	require.Len(t, rows, 1)
	require.Equal(t, []string{first.HandoffID, runOf(first)},
		[]string{rows[0].HandoffID, rows[0].RunID})
}

// Rows come in the order in which they were asked for, whatever their towns are, and go on behind a
// place.
func TestList_Order(t *testing.T) {
	t.Parallel()
	a := newAsking(t)
	for _, townID := range []string{"c", "a", "b"} {
		a.talk(townID)
		a.now = a.now.Add(time.Millisecond)
	}
	rows := a.list("")
	require.Equal(t, []string{"c", "a", "b"}, townsOf(rows))
	page, err := a.List(t.Context(), "", "", 2, 1<<20, all)
	require.NoError(t, err)
	require.Equal(t, []string{"c", "a"}, townsOf(page.Approvals))
	require.Equal(t, []string{"b"}, townsOf(a.list(page.Next)))
	page, err = a.List(t.Context(), "", "", 100, 1, all)
	require.NoError(t, err)
	require.Equal(t, []string{"c"}, townsOf(page.Approvals), "one, however large it is")
	require.Equal(t, []string{"a", "b"}, townsOf(a.list(page.Next)))
	page, err = a.List(t.Context(), "", "", 1, 1<<20, func(id string) bool { return id != "c" })
	require.NoError(t, err)
	require.Equal(t, []string{"a"}, townsOf(page.Approvals))
	page, err = a.List(t.Context(), "b", "", 100, 1<<20, nil)
	require.NoError(t, err)
	require.Equal(t, []string{"b"}, townsOf(page.Approvals))
}

// A list has only proposals that wait, and whose town asks for their approval.
func TestList_Status(t *testing.T) {
	t.Parallel()
	decided := func(approved bool) func(*asking, *machine.Town) {
		return func(a *asking, e *machine.Town) {
			d := approval.Decision{Approved: approved, SignalID: "s", ActorID: "mara",
				Reason: "why", At: noon}
			var refused *approval.SignalRefusal
			e.Approvals, _, refused = e.Approvals.Decide(
				approval.HandoffRef{HandoffID: e.Approvals[0].HandoffID}, e.State.Hash, d, time.Hour)
			require.Nil(a.t, refused)
		}
	}
	for _, row := range []struct {
		name string
		then func(*asking, *machine.Town)
		want approval.Status
	}{
		{"as it was", nil, approval.Waiting},
		{"approved", decided(true), approval.Approved},
		{"denied", decided(false), ""},
		{"used", func(a *asking, e *machine.Town) {
			decided(true)(a, e)
			encoded := e.Approvals[0].Handoff
			h, err := handoff.Parse(encoded, schemas.Limits{})
			require.NoError(a.t, err)
			e.Approvals = e.Approvals.MarkUsed(h, encoded, "run-1")
		}, ""},
		{"the town has changed", func(_ *asking, e *machine.Town) {
			e.State = townState("t", towntest.Calmer)
		}, ""},
		{"it has expired", func(a *asking, _ *machine.Town) { a.now = noon.Add(time.Hour) }, ""},
		{"it is about to expire", func(a *asking, _ *machine.Town) {
			a.now = noon.Add(time.Hour - 1)
		}, approval.Waiting},
		{"the world asks for none", func(a *asking, _ *machine.Town) {
			a.Default = approval.Policy{}
		}, ""},
		{"the town asks for none", func(_ *asking, e *machine.Town) {
			e.Policy = &approval.Policy{}
		}, ""},
		{"the town asks, the world does not", func(a *asking, e *machine.Town) {
			policy := a.Default
			a.Default, e.Policy = approval.Policy{}, &policy
		}, approval.Waiting},
		{"the handoff is damaged", func(_ *asking, e *machine.Town) {
			e.Approvals[0].Handoff = []byte(`{}`)
		}, ""},
	} {
		t.Run(row.name, func(t *testing.T) {
			t.Parallel()
			a := newAsking(t)
			h := a.talk("t")
			if row.then != nil {
				logtest.Commit(t, a.Log, &machine.Record{Kind: machine.KindPut, TownID: "t"},
					func(e *machine.Town) { row.then(a, e) })
			}
			rows := a.list("")
			if row.want == "" {
				require.Empty(t, rows)
				return
			}
			require.Len(t, rows, 1)
			require.Equal(t, h.HandoffID, rows[0].HandoffID)
			require.Equal(t, string(row.want), rows[0].Status)
			if row.want == approval.Approved {
				require.Equal(t, []string{"mara", runevents.Timestamp(noon), "why"},
					[]string{rows[0].DecidedBy, rows[0].DecidedAt, rows[0].Reason})
			}
		})
	}
}

// A damaged town is left out, and logged.
func TestList_DamagedTown(t *testing.T) {
	t.Parallel()
	a := newAsking(t)
	a.talk("a")
	a.talk("b")
	last, err := a.Log.LastMessage(t.Context(), "a")
	require.NoError(t, err)
	for name := range last.Header {
		if strings.HasPrefix(name, layout.ServerHeaderPrefix) {
			delete(last.Header, name)
		}
	}
	_, err = logtest.JetStream(a.Log).PublishMsg(t.Context(), &nats.Msg{
		Subject: last.Subject, Header: last.Header, Data: []byte("{damaged"),
	})
	require.NoError(t, err)
	require.Equal(t, []string{"b"}, townsOf(a.list("")))
	require.Contains(t, a.log.String(), "level=ERROR")
	_, err = a.List(t.Context(), "a", "", 100, 1<<20, nil)
	require.ErrorIs(t, err, records.ErrTownDamaged)
	ended, cancel := context.WithCancel(t.Context())
	cancel()
	_, err = a.List(ended, "", "", 100, 1<<20, all)
	require.Error(t, err, "half a list is none")
}

// A page has a bounded size, and the next one begins at its end.
func TestList_Bytes(t *testing.T) {
	t.Parallel()
	a := newAsking(t)
	for i := range 5 {
		townID := string(rune('a' + i))
		a.approve(townID, a.talk(townID), strings.Repeat("x", 1000)) // a row has more than its handoff
		a.now = a.now.Add(time.Second)
		a.ask(townID, handoff.AdvanceProject, "wall")
	}
	whole := a.list("")
	require.NotEmpty(t, whole)
	largest := 0
	for _, row := range whole {
		data, err := json.Marshal(row)
		require.NoError(t, err)
		largest = max(largest, len(data))
	}
	for _, bytes := range []int{largest, 2*largest + 1, 5 * largest} {
		var got []*messages.Approval
		for after := ""; ; {
			page, err := a.List(t.Context(), "", after, 100, bytes, all)
			require.NoError(t, err)
			require.NotEmpty(t, page.Approvals)
			size := 0
			for _, row := range page.Approvals {
				data, err := json.Marshal(row)
				require.NoError(t, err)
				size += len(data)
			}
			require.LessOrEqual(t, size, bytes)
			got = append(got, page.Approvals...)
			if after = page.Next; after == "" {
				break
			}
		}
		require.Equal(t, whole, got)
	}
}

// An approved proposal that a town has forgotten is used if its very handoff was carried out, also if
// that record has no proposals, or cannot be read.
func TestClosed_ForgottenApproval(t *testing.T) {
	t.Parallel()
	a := newAsking(t)
	h := a.talk("t")
	a.approve("t", h, "why")
	forget := func(e *machine.Town) { e.Approvals = nil }
	logtest.Commit(t, a.Log, &machine.Record{Kind: machine.KindPut, TownID: "t"}, forget)
	closed := func() []string {
		page, err := a.Closed(t.Context(), "t", "", 10, 1<<20, all)
		require.NoError(t, err)
		require.Len(t, page.Approvals, 1)
		return []string{page.Approvals[0].Status, page.Approvals[0].RunID}
	}
	require.Equal(t, []string{"stale", runOf(h)}, closed())
	execute := func(h *handoff.Handoff, runID string) uint64 {
		encoded, err := h.MarshalWire()
		require.NoError(t, err)
		result, err := handoff.NewResult(h, handoff.Outcome{Status: handoff.Executed,
			ReasonCode: handoff.ReasonExecuted}).MarshalWire()
		require.NoError(t, err)
		return logtest.Commit(t, a.Log, &machine.Record{Kind: machine.KindConcluded, TownID: "t",
			Result: result, Handoff: encoded,
			Run: &runlog.Run{Identity: runevents.Identity{RunID: runID}, FirstSeq: 1}}, forget)
	}
	other := h.Proposal
	other.Reason = "Another one with its key."
	reused, err := handoff.New(other)
	require.NoError(t, err)
	execute(reused, "run-0")
	require.Equal(t, []string{"stale", runOf(h)}, closed())
	seq := execute(h, "run-1")
	require.Equal(t, []string{"used", "run-1"}, closed())
	a.Log.Store = &damagedStore{a.Log.Store, seq}
	require.Equal(t, []string{"stale", runOf(h)}, closed())
}

// A decision is named however many proposals the town has decided about since.
func TestClosed_DecisionBehindMany(t *testing.T) {
	t.Parallel()
	a := newAsking(t)
	_, err := logtest.JetStream(a.Log).UpdateStream(t.Context(),
		worldsettings.StreamConfig("main", worldsettings.Settings{HistoryPerTown: 1000}, 1))
	require.NoError(t, err)
	a.approve("t", a.talk("t"), "why")
	for range maxTownRows {
		logtest.Commit(t, a.Log, &machine.Record{Kind: machine.KindDecided, TownID: "t",
			Run: &runlog.Run{Identity: runevents.Identity{RunID: "later"}, FirstSeq: 1}},
			func(e *machine.Town) { e.Approvals = nil })
	}
	page, err := a.Closed(t.Context(), "t", "", 10, 1<<20, all)
	require.NoError(t, err)
	require.Len(t, page.Approvals, 1)
	row := page.Approvals[0]
	require.Equal(t, []string{"mara", "why"}, []string{row.DecidedBy, row.Reason})
}

// A question that expired stays so when its handoff is asked about again, and decided.
func TestClosed_AskedAgain(t *testing.T) {
	t.Parallel()
	a := newAsking(t)
	a.talk("t")
	a.now = noon.Add(time.Hour)
	expired := func() {
		t.Helper()
		page, err := a.Closed(t.Context(), "t", "", 10, 1<<20, all)
		require.NoError(t, err)
		require.Len(t, page.Approvals, 1)
		row := page.Approvals[0]
		require.Equal(t, []string{"expired", ""}, []string{row.Status, row.DecidedBy})
	}
	expired()
	again := a.talk("t")
	expired()
	a.approve("t", again, "why")
	expired()
}

// A page of closed proposals has a bounded size, and the next one begins at its end.
func TestClosed_Bytes(t *testing.T) {
	t.Parallel()
	a := newAsking(t)
	for range 3 {
		a.talk("t")
		a.now = a.now.Add(time.Hour)
	}
	whole, err := a.Closed(t.Context(), "t", "", 10, 1<<20, all)
	require.NoError(t, err)
	require.Len(t, whole.Approvals, 3)
	data, err := json.Marshal(whole.Approvals[0])
	require.NoError(t, err)
	for bytes, rows := range map[int]int{1: 1, len(data): 1, 2*len(data) - 1: 1, 2 * len(data): 2} {
		page, err := a.Closed(t.Context(), "t", "", 10, bytes, all)
		require.NoError(t, err)
		require.Equal(t, whole.Approvals[:rows], page.Approvals, bytes)
		page, err = a.Closed(t.Context(), "t", page.Next, 10, 1<<20, all)
		require.NoError(t, err)
		require.Equal(t, whole.Approvals[rows:], page.Approvals, bytes)
	}
}

// damagedStore shows one message of a log without its body.
type damagedStore struct {
	commitlog.Store
	seq uint64
}

func (s *damagedStore) At(ctx context.Context, seq uint64) (*jetstream.RawStreamMsg, error) {
	msg, err := s.Store.At(ctx, seq)
	if err == nil && seq == s.seq {
		msg.Data = nil
	}
	return msg, err
}

// approve approves a handoff of a town, which waits for that.
func (a *asking) approve(townID string, h *handoff.Handoff, reason string) {
	a.t.Helper()
	current, err := a.Log.Load(a.t.Context(), townID)
	require.NoError(a.t, err)
	in := machine.Input{TownID: townID, At: a.now, Event: &machine.Signal{
		Kind: machine.SignalApprove, TownID: townID, HandoffID: h.HandoffID, ActorID: "mara",
		Reason: reason, Run: runevents.Identity{
			RunID: uuid.NewString(), TenantID: "default", ProjectID: "main",
			EnvironmentID: "local", PlanID: machine.SignalPlan,
			PlanVersion: machine.SignalVersion,
		},
	}}
	for range in.Event.MaxIDs() {
		in.IDs = append(in.IDs, uuid.NewString())
	}
	out, err := machine.Step(current, &in, &machine.Settings{ApprovalTimeout: time.Minute})
	require.NoError(a.t, err)
	require.Nil(a.t, out.SignalRefusal)
	require.NoError(a.t, a.Log.CommitTown(a.t.Context(), out.Record, &out.NextTown, current.Seq))
}
