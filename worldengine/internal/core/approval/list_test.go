package approval_test

import (
	"bytes"
	"flag"
	"fmt"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/go-json-experiment/json"
	"github.com/stretchr/testify/require"

	"worldengine/handoff"
	"worldengine/schemas/schemastest"
	"worldengine/trace"
	"worldengine/worldengine/internal/core/approval"
)

var rewrite = flag.Bool("rewrite", false, "write the results of testdata/lists.txt anew")

var (
	noon = time.Date(2026, 2, 16, 12, 0, 0, 0, time.UTC)
	// talks is the policy that asks for approvals of the proposals of these tests.
	talks = approval.Policy{Types: []handoff.ProposalType{handoff.TalkToTownsfolk}}
)

// proposal is a handoff as an engine writes it.
type proposal struct {
	*handoff.Handoff
	bytes []byte
}

// proposed returns the proposal with a number, of an actor.
func proposed(t *testing.T, actor, number string) proposal {
	t.Helper()
	h, err := handoff.New(handoff.Proposal{
		Type: handoff.TalkToTownsfolk, ActorID: actor, TownID: "t", Reason: "Because.",
		ProposalID:   "proposal_" + strings.Repeat("0", 64-len(number)) + number,
		Args:         map[string]string{handoff.TalkToTownsfolk.ArgumentName(): "casual"},
		SnapshotHash: strings.Repeat("a", 64), DecisionEpoch: 1,
	})
	require.NoError(t, err)
	encoded, err := h.MarshalWire()
	require.NoError(t, err)
	return proposal{h, encoded}
}

// sized returns a proposal with more spaces.
func sized(t *testing.T, actor, number string, size int) proposal {
	t.Helper()
	p := proposed(t, actor, number)
	p.bytes = append(p.bytes, bytes.Repeat([]byte{' '}, size-len(p.bytes))...)
	return p
}

// ask returns the list with a proposal that waits for an hour from noon on.
func (p proposal) ask(list approval.List) approval.List {
	return list.Add(p.Handoff, p.bytes, trace.Context{}, noon, time.Hour)
}

// judge returns the clearance by a list at noon.
func (p proposal) judge(list approval.List) approval.Clearance {
	return list.Clearance(talks, p.Handoff, p.bytes, noon)
}

// decide returns the list with a decision of a person, given at noon and later, which counts an hour.
func (p proposal) decide(
	list approval.List, approved bool, actor string, later time.Duration,
) (approval.List, approval.Request, *approval.SignalRefusal) {
	return list.Decide(approval.HandoffRef{HandoffID: p.HandoffID}, p.SnapshotHash,
		decision(approved, actor, noon.Add(later)), time.Hour)
}

func decision(approved bool, actor string, at time.Time) approval.Decision {
	return approval.Decision{Approved: approved, SignalID: actor + "'s signal", ActorID: actor,
		Reason: "why", At: at}
}

func TestPolicy_Texts(t *testing.T) {
	t.Parallel()
	for text, want := range map[string]string{
		"none": "none", "PROJECT_ADVANCE": "PROJECT_ADVANCE",
		"SALVAGE_PLAN, PROJECT_ADVANCE,SALVAGE_PLAN": "PROJECT_ADVANCE,SALVAGE_PLAN",
	} {
		p, err := approval.Parse(text)
		require.NoError(t, err)
		require.Equal(t, want, p.String())
		require.Equal(t, want == "PROJECT_ADVANCE,SALVAGE_PLAN", p.Requires(handoff.PlanSalvage))
	}
	for _, text := range []string{"", "MAGIC", "PROJECT_ADVANCE,", "none,PROJECT_ADVANCE"} {
		_, err := approval.Parse(text)
		require.ErrorContains(t, err, "MAYOR_ACCEPT_MISSION", text)
	}
	for _, text := range []string{"MAGIC,PROJECT_ADVANCE", "project_advance", "SALVAGE_PLAN,none"} {
		stored := approval.ParseStored(text)
		require.Equal(t, text, stored.String())
		for _, kind := range handoff.ProposalTypes() {
			require.True(t, stored.Requires(kind), "%s may stand for any type", text)
			require.Contains(t, stored.Explain(kind),
				string(kind)+" needs the approval of a person: ")
		}
	}
	require.Equal(t, []handoff.ProposalType{"MAGIC"},
		approval.ParseStored("MAGIC,PROJECT_ADVANCE").UnknownTypes())
	require.False(t, approval.ParseStored("SALVAGE_PLAN").Requires(handoff.AdvanceProject))
	require.Equal(t, approval.Policy{}, approval.ParseStored(""))
	require.Equal(t, approval.Policy{}, approval.ParseStored(approval.None))
	require.Nil(t, approval.ParseTree(nil), "a town without a list has the world's")
	free := approval.ParseTree([]any{})
	require.Equal(t, "none", free.String(), "an empty list frees a town")
	require.NotNil(t, free.Types, "and is stored as one")

	require.Equal(t, &talks, talks.Inherited(nil))
	require.Nil(t, talks.Inherited(free))
	require.Nil(t, free.Inherited(nil))
}

// The status of an entry follows from its decision, the state of the town and the time, in this order.
func TestRequest_Status(t *testing.T) {
	t.Parallel()
	yes, no := decision(true, "ada", noon), decision(false, "ada", noon)
	const waits, closed = true, false
	for _, c := range []struct {
		name     string
		handoff  bool
		decision *approval.Decision
		hash     string
		at       time.Time
		want     approval.Status
	}{
		{"asked", waits, nil, "a", noon, approval.Waiting},
		{"asked, a moment before it lapses", waits, nil, "a", noon.Add(time.Hour - 1),
			approval.Waiting},
		{"lapsed", waits, nil, "a", noon.Add(time.Hour), approval.Expired},
		{"of another state", waits, nil, "b", noon, approval.Stale},
		{"of another state, and lapsed", waits, nil, "b", noon.Add(time.Hour), approval.Stale},
		{"closed, and the town is as it was", closed, nil, "a", noon, approval.Stale},
		{"approved", waits, &yes, "a", noon, approval.Approved},
		{"approved, and lapsed", waits, &yes, "a", noon.Add(time.Hour), approval.Expired},
		{"approved in another state", waits, &yes, "b", noon, approval.Stale},
		{"used", closed, &yes, "b", noon.Add(time.Hour), approval.Used},
		{"denied", closed, &no, "a", noon, approval.Denied},
		{"denied in another state", closed, &no, "b", noon, approval.Stale},
	} {
		a := approval.Request{SnapshotHash: "a", At: noon, Expires: noon.Add(time.Hour),
			Decision: c.decision}
		if c.handoff {
			a.Handoff = []byte(`{}`)
		}
		got := a.Status(c.hash, c.at)
		require.Equal(t, c.want, got, c.name)
		require.Equal(t, c.want == approval.Waiting || c.want == approval.Approved, got.IsOpen(),
			c.name)
	}
}

// ledger is a list, in a town's state and at a time.
type ledger struct {
	t     *testing.T
	list  approval.List
	state string
	now   time.Time
	names map[string]string // of the proposals, by their hashes
}

// The scenarios of testdata/lists.txt have their results. No step changes the list before.
func TestList_Scenarios(t *testing.T) {
	t.Parallel()
	const file = "testdata/lists.txt"
	want, err := os.ReadFile(file)
	require.NoError(t, err)
	var got strings.Builder
	var l *ledger
	for line := range strings.Lines(string(want)) {
		if strings.HasPrefix(line, "  ") {
			continue
		}
		got.WriteString(line)
		if strings.HasPrefix(line, "== ") {
			l = &ledger{t: t, state: "a", now: noon, names: map[string]string{}}
		} else if words := strings.Fields(line); l != nil && len(words) > 0 {
			list := l.list
			before, err := json.Marshal(list)
			require.NoError(t, err)
			for _, result := range l.step(words[0], words[1:]) {
				fmt.Fprintln(&got, " ", result)
			}
			after, err := json.Marshal(list)
			require.NoError(t, err)
			require.Equal(t, string(before), string(after), line)
		}
	}
	schemastest.Golden(t, file, got.String(), *rewrite)
}

func (l *ledger) step(verb string, words []string) (results []string) {
	switch verb {
	case "at":
		d, err := time.ParseDuration(words[0])
		require.NoError(l.t, err)
		l.now = noon.Add(d)
	case "town":
		l.state = words[0]
		l.list = l.list.CloseStale(l.hash())
	case "judge":
		p := l.proposal(words...)
		switch j := l.list.Clearance(talks, p.Handoff, p.bytes, l.now); {
		case j.Approved != nil:
			results = append(results, "approved by "+j.Approved.ActorID)
		case j.Enqueue:
			results = append(results, string(j.Reason)+", ask: "+j.Detail)
		default:
			results = append(results, string(j.Reason)+": "+j.Detail)
		}
	case "ask":
		p := l.proposal(words...)
		l.list = l.list.Add(p.Handoff, p.bytes, trace.Context{}, l.now, time.Hour)
	case "approve", "deny": // P by NAME of ACTOR
		q := approval.HandoffRef{HandoffID: l.proposal(words[0]).HandoffID}
		if len(words) > 3 {
			q.HandoffHash = approval.Hash(l.proposal(words[0], words[4]).bytes)
		}
		after, entry, refused := l.list.Decide(q, l.hash(),
			decision(verb == "approve", words[2], l.now), time.Hour)
		if refused != nil {
			return append(results, string(refused.Code)+": "+refused.Message)
		}
		l.list = after
		results = append(results, l.describe(&entry))
	case "execute":
		p := l.proposal(words...)
		l.list = l.list.MarkUsed(p.Handoff, p.bytes, "run-1")
	case "list":
		for i := range l.list {
			a := &l.list[i]
			require.Equal(l.t, a, l.list.Find(a.HandoffID, a.HandoffHash))
			if a.Decision != nil {
				require.NotNil(l.t, l.list.DecidedBy(a.Decision.SignalID))
			}
			results = append(results, l.describe(a))
		}
		require.Nil(l.t, l.list.DecidedBy("another"))
		if !l.list.AnyOpen() {
			results = append(results, "none is open")
		}
	}
	return results
}

// hash returns the hash of the town's state. Proposals are made from the state a.
func (l *ledger) hash() string { return strings.Repeat(l.state, 64) }

// proposal returns the proposal with a number, of an actor.
func (l *ledger) proposal(words ...string) proposal {
	actor := "mayor"
	if len(words) > 1 {
		actor = words[1]
	}
	p := proposed(l.t, actor, words[0])
	l.names[approval.Hash(p.bytes)] = words[0] + " " + actor
	return p
}

func (l *ledger) describe(a *approval.Request) string {
	text := fmt.Sprint(l.names[a.HandoffHash], ": ", a.Status(l.hash(), l.now), " until ",
		a.Expires.Format(time.TimeOnly))
	if a.Decision != nil {
		text += fmt.Sprintf(", decided by %s at %s", a.Decision.ActorID,
			a.Decision.At.Format(time.TimeOnly))
	}
	if a.RunID != "" {
		text += fmt.Sprintf(", %s, key %.12s", a.RunID, a.IdempotencyKey)
	}
	if a.Handoff == nil {
		text += ", closed"
	}
	return text
}

// Open proposals are bounded in number and bytes, for each actor and for the town.
func TestJudge_Bounds(t *testing.T) {
	t.Parallel()
	requireFull := func(p proposal, list approval.List, detail string) {
		t.Helper()
		full := p.judge(list)
		require.Equal(t, handoff.ReasonApprovalsFull, full.Reason)
		require.Contains(t, full.Detail, detail)
	}
	var ofTown, ofActor approval.List
	for i := range approval.MaxOpen {
		p := proposed(t, fmt.Sprint("mayor-", i), fmt.Sprint(i))
		require.True(t, p.judge(ofTown).Enqueue, i)
		ofTown = p.ask(ofTown)
		if i < approval.MaxActorOpen {
			own := proposed(t, "one", fmt.Sprint(i))
			require.True(t, own.judge(ofActor).Enqueue, i)
			ofActor = own.ask(ofActor)
		}
	}
	next := proposed(t, "one", "abc")
	requireFull(next, ofActor, "of this actor")
	require.True(t, proposed(t, "another", "abc").judge(ofActor).Enqueue)
	requireFull(next, ofTown, "of the town")
	require.True(t, ofTown.Clearance(talks, next.Handoff, next.bytes, noon.Add(time.Hour)).Enqueue,
		"expired ones make room")
	require.Len(t, ofTown.Add(next.Handoff, next.bytes, trace.Context{}, noon.Add(time.Hour),
		time.Hour), 1)

	half := approval.MaxActorBytes / 2
	list := sized(t, "one", "1", half).ask(nil)
	rest := sized(t, "one", "2", approval.MaxActorBytes-half)
	require.True(t, rest.judge(list).Enqueue)
	requireFull(sized(t, "one", "2", approval.MaxActorBytes-half+1), list, "of this actor")
	room := approval.MaxBytes - half
	for i := 0; room > half; i++ {
		list, room = sized(t, fmt.Sprint("actor-", i), fmt.Sprint(i), half).ask(list), room-half
	}
	require.True(t, sized(t, "last", "9", room).judge(list).Enqueue)
	requireFull(sized(t, "last", "9", room+1), list, "of the town")
	large := sized(t, "one", "1", approval.MaxActorBytes+1).judge(nil)
	require.Equal(t, handoff.ReasonApprovalTooLarge, large.Reason)
	require.Contains(t, large.Detail, "shorten the texts")
}

// When the town changes, its entries are closed, an unused approval is none any more, and few are
// kept. A denial of the present state stays; once a list has as many as it may, no other proposal
// waits until the town changes or they expire.
func TestOn_Closes(t *testing.T) {
	t.Parallel()
	var list approval.List
	var all []proposal
	for i := range approval.MaxDenied {
		all = append(all, proposed(t, fmt.Sprint("mayor-", i), fmt.Sprint(i)))
		list = all[i].ask(list)
	}
	approved, _, refused := all[99].decide(list, true, "ada", 0)
	require.Nil(t, refused)
	closed := approved.CloseStale("b")
	require.Len(t, closed, 16)
	for i := range closed {
		require.Nil(t, closed[i].Handoff)
		require.Equal(t, approval.Stale, closed[i].Status(all[0].SnapshotHash, noon))
	}
	require.Equal(t, closed, closed.CloseStale("b"))

	for i := range all { // the last one first
		p := all[len(all)-1-i]
		list, _, refused = p.decide(list, false, "ada", time.Duration(i)*time.Second)
		require.Nil(t, refused)
		list = list.CloseStale(p.SnapshotHash)
	}
	require.Len(t, list, approval.MaxDenied)
	for _, p := range all {
		require.Equal(t, handoff.ReasonApprovalDenied, p.judge(list).Reason)
	}
	next := proposed(t, "one", "abc")
	require.Equal(t, handoff.ReasonApprovalsFull, next.judge(list).Reason)
	require.Contains(t, next.judge(list).Detail,
		"100 proposals made from this state of the town were denied")
	require.True(t, list.Clearance(talks, next.Handoff, next.bytes, noon.Add(3*time.Hour)).Enqueue,
		"denials expire")
	closed = list.CloseStale("b")
	require.Len(t, closed, 16)
	for i := range closed {
		require.True(t, closed[i].Decision.At.After(noon.Add(83*time.Second)),
			"the last decided ones are kept")
	}
}

// An entry has the trace of the delivery that asked for as long as the handoff may be executed.
func TestRequest_Trace(t *testing.T) {
	t.Parallel()
	p := proposed(t, "mayor", "1")
	of := trace.Parse("00-"+strings.Repeat("1", 32)+"-00f067aa0ba902b7-01", "")
	list := approval.List(nil).Add(p.Handoff, p.bytes, of, noon, time.Hour)
	approved, entry, refused := p.decide(list, true, "ada", 0)
	require.Nil(t, refused)
	require.Equal(t, of, entry.Trace)
	stored, err := json.Marshal(approved)
	require.NoError(t, err)
	var read approval.List
	require.NoError(t, json.Unmarshal(stored, &read))
	require.Equal(t, of, read[0].Trace)

	denied, _, refused := p.decide(list, false, "ada", 0)
	require.Nil(t, refused)
	for _, closed := range []approval.List{denied, list.CloseStale("b"),
		approved.MarkUsed(p.Handoff, p.bytes, "run-1")} {
		stored, err := json.Marshal(closed)
		require.NoError(t, err)
		require.NotContains(t, string(stored), "trace")
	}
}
