package languages_test

import (
	"math"
	"math/rand/v2"
	"strconv"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"worldengine/handoff"
	"worldengine/runevents"
)

// draws are the questions about a random document each.
var draws = []func(t *testing.T, r *drawer) string{
	func(_ *testing.T, r *drawer) string { return line("canonical", "value", raw(r.json(4))) },
	func(t *testing.T, r *drawer) string {
		h := r.handoff(t)
		return line("handoff", "town", state(h), "proposal", h["proposal"])
	},
	func(t *testing.T, r *drawer) string { return line("resultId", "result", r.result(t)) },
	func(_ *testing.T, r *drawer) string { return line("token", "townId", r.string(100)+"x") },
	func(_ *testing.T, r *drawer) string { return keyLine(r.key()) },
}

// random returns questions about so many documents of each kind, with the answers of Go.
func random(t *testing.T, n int) []question {
	t.Helper()
	r := &drawer{rand.New(rand.NewPCG(*seed, 0))}
	var questions []question
	for range n {
		for _, draw := range draws {
			asked := draw(t, r)
			questions = append(questions, question{name: "random", line: asked, want: answer(t, asked)})
		}
	}
	return questions
}

// drawer draws random documents.
type drawer struct{ *rand.Rand }

// json returns a JSON value in any spelling, such as 1.50E1 or \u0061.
func (r *drawer) json(depth int) string {
	kind := r.IntN(8)
	if depth == 0 {
		kind = r.IntN(5)
	}
	switch kind {
	case 0:
		return []string{"null", "true", "false"}[r.IntN(3)]
	case 1, 2:
		return r.number()
	case 3, 4:
		return r.quoted(r.string(12))
	case 5, 6:
		members, names := []string{}, map[string]bool{}
		for range r.IntN(7) {
			if name := r.name(); !names[name] {
				names[name] = true
				members = append(members, r.space()+r.quoted(name)+r.space()+":"+r.space()+r.json(depth-1))
			}
		}
		return "{" + strings.Join(members, ",") + r.space() + "}"
	}
	var elements []string
	for range r.IntN(7) {
		elements = append(elements, r.space()+r.json(depth-1)+r.space())
	}
	return "[" + strings.Join(elements, ",") + "]"
}

func (r *drawer) space() string { return []string{"", "", " ", "\t"}[r.IntN(4)] }

func (r *drawer) name() string {
	if r.IntN(4) == 0 {
		return []string{"__proto__", "constructor", "10", "9", "", "\ufb33", "\U0001F600", "e\u0301"}[r.IntN(8)]
	}
	return r.string(6)
}

// number returns a finite number in one of its spellings.
func (r *drawer) number() string {
	f := math.Float64frombits(r.Uint64())
	switch r.IntN(5) {
	case 0:
		f = float64(r.IntN(2000) - 1000)
	case 1:
		f = math.Pow(10, float64(r.IntN(60)-30)) * float64(r.IntN(10))
	case 2:
		f = float64(r.Int64()) / math.Pow(10, float64(r.IntN(25)))
	}
	if math.IsNaN(f) || math.IsInf(f, 0) {
		f = 5e-324
	}
	switch magnitude := math.Abs(f); {
	case r.IntN(2) == 0 && magnitude < 1e25 && magnitude > 1e-15:
		return strconv.FormatFloat(f, 'f', []int{-1, 2, 17}[r.IntN(3)], 64)
	case r.IntN(2) == 0:
		return strconv.FormatFloat(f, 'E', 16, 64)
	}
	return strconv.FormatFloat(f, 'e', -1, 64)
}

// string returns a string of at most n runes, of the sets in which languages differ.
func (r *drawer) string(n int) string {
	var b strings.Builder
	for range r.IntN(n + 1) {
		switch r.IntN(7) {
		case 0:
			b.WriteRune(rune(r.IntN(0x20)))
		case 1:
			b.WriteRune([]rune("\"\\/<>&'\u007f\u0080\u2028\u2029\ufeff\uffff\u0301")[r.IntN(14)])
		case 2:
			b.WriteRune(rune(0x10000 + r.IntN(0x10000)))
		case 3:
			b.WriteRune(rune(0xA0 + r.IntN(0xD000)))
		default:
			b.WriteRune(rune(0x20 + r.IntN(0x5F)))
		}
	}
	return b.String()
}

// quoted returns a string as JSON, some runes of it escaped.
func (r *drawer) quoted(s string) string {
	const escapes = "\"\\\b\f\n\r\t"
	var b strings.Builder
	for _, c := range s {
		switch {
		case c < 0x20 || c < 0x10000 && r.IntN(6) == 0:
			b.WriteString(`\u` + strconv.FormatInt(0x10000+int64(c), 16)[1:])
		case strings.ContainsRune(escapes, c):
			b.WriteString(`\` + string(c))
		default:
			b.WriteRune(c)
		}
	}
	return `"` + b.String() + `"`
}

func (r *drawer) handoff(t *testing.T) object {
	t.Helper()
	types := handoff.ProposalTypes()
	spec := types[r.IntN(len(types))].Spec()
	argument := r.string(20) + "x"
	if spec.Values != nil {
		argument = spec.Values[r.IntN(len(spec.Values))]
	}
	p := object{
		"type": string(spec.Type), "actorId": r.string(20) + "x", "reason": r.string(40) + "x",
		"priority": r.Float64(), "args": object{spec.Argument: argument},
		"reasonTags": []any{r.string(5), r.string(5)}[:r.IntN(3)],
		// An empty list may be left out of a proposal, and clients differ in that.
		"preconditions": []any{object{"kind": r.string(5) + "k", "targetId": r.string(9) + "t"}},
	}
	town := object{"townId": r.string(40) + "x", "snapshotHash": answerHash(argument),
		"decisionEpoch": float64(r.Int64N(1 << 53))}
	h := made(t, town, p).(object)
	if r.IntN(2) == 0 {
		delete(h["proposal"].(object), "proposalId")
	}
	return h
}

// result returns a result without its id.
func (r *drawer) result(t *testing.T) object {
	t.Helper()
	statuses := handoff.Statuses()
	first, epoch := r.string(9)+"x", r.Int64N(1<<53)
	outcome := handoff.Outcome{Status: statuses[r.IntN(len(statuses))], ReasonCode: handoff.ReasonCode(r.string(9) + "x")}
	outcome.Evaluation.Preconditions.Failures = []handoff.Failure{{Kind: "k", Detail: r.string(30) + "x"}}[:r.IntN(2)]
	if r.IntN(2) == 0 {
		outcome.Evaluation.DuplicateCheck = handoff.DuplicateReport{Evaluated: true, Duplicate: true, DuplicateOf: &first}
		outcome.Evaluation.StaleCheck.ActualDecisionEpoch = &epoch
	} else {
		outcome.WorldState = &handoff.WorldState{SnapshotHash: &first, DecisionEpoch: &epoch}
	}
	var h handoff.Handoff
	read(t, text(r.handoff(t)), &h)
	result := handoff.NewResult(&h, outcome)
	if r.IntN(2) == 0 {
		data, err := result.MarshalWire()
		require.NoError(t, err)
		return decoded(t, string(data)).(object)
	}
	one, err := result.Revision1(handoff.AdditionOf(&h), &first)
	require.NoError(t, err)
	data, err := one.MarshalWire()
	require.NoError(t, err)
	return decoded(t, string(data)).(object)
}

func (r *drawer) key() object {
	types := runevents.EventTypes(0)
	key := object{"runId": r.string(9) + "x", "logicalAttemptId": float64(1 + r.Int64N(1<<40)),
		"eventType": string(types[r.IntN(len(types))]), "planId": r.string(9) + "x", "planVersion": r.string(9) + "x"}
	if runevents.EventType(key["eventType"].(string)).IsStepLevel() {
		key["stepId"] = r.string(9) + "x"
	}
	return key
}

func answerHash(canonical string) string { return handoff.Hash([]byte(canonical)) }
