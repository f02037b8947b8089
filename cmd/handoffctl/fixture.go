package main

import (
	"cmp"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"

	"worldengine/handoff"
	"worldengine/schemas"
	"worldengine/worldengine/apply"
	"worldengine/worldengine/client"
	"worldengine/worldengine/messages"
)

// fixtureParts are the members of a fixture. Some are read and not used: in the vectors of the
// agents' library they name the origin of a fixture.
type fixtureParts struct {
	Name         string         `json:"name,omitzero"`
	Comment      jsontext.Value `json:"comment,omitzero"`
	SnapshotName jsontext.Value `json:"snapshotName,omitzero"`
	From         jsontext.Value `json:"from,omitzero"`
	Outcome      jsontext.Value `json:"outcome,omitzero"`
	Result       jsontext.Value `json:"result,omitzero"`
	// Handoff and Snapshot are sent as they are; without a snapshot the town stays as it is.
	Handoff  jsontext.Value `json:"handoff"`
	Snapshot jsontext.Value `json:"snapshot,omitzero"`
	// Game is the answer of the town's game, and Approval a person's decision; nil for none.
	Game     *apply.Answer    `json:"game,omitzero"`
	Approval *fixtureDecision `json:"approval,omitzero"`
	Expect   expectation      `json:"expect,omitzero"`
}

// fixtureDecision is a person's decision in a fixture. Without one nobody has decided.
type fixtureDecision struct {
	Decision string `json:"decision,omitzero"` // approve or reject
	ActorID  string `json:"actorId,omitzero"`
	Reason   string `json:"reason,omitzero"`
}

// expectation is the expected answer of a fixture; zero members are not compared.
type expectation struct {
	Status     handoff.Status     `json:"status,omitzero"`
	ReasonCode handoff.ReasonCode `json:"reasonCode,omitzero"`
	// Result is a whole result, in any format.
	Result jsontext.Value `json:"result,omitzero"`
	// ResultBytes are the bytes of a whole result.
	ResultBytes string `json:"resultBytes,omitzero"`
	// Error is the machine code of the refusal that the handoff is expected to get.
	Error string `json:"error,omitzero"`
}

// compares reports whether e expects anything.
func (e *expectation) compares() bool { return e.comparesResult() || e.Error != "" }

func (e *expectation) comparesResult() bool {
	return e.Status != "" || e.ReasonCode != "" || e.Result != nil || e.ResultBytes != ""
}

// fixture is one handoff to replay.
type fixture struct {
	fixtureParts
	file, label string         // the label has the file, the index in it and the name
	element     jsontext.Value // of the file, as it was read
	town        string         // the handoff's, "" if it cannot be read
}

// loadFixtures reads the fixtures of files. There is one fixture at least.
func loadFixtures(a *app, files []string) ([]fixture, error) {
	var all []fixture
	for _, file := range files {
		data, err := a.read(file)
		if err != nil {
			return nil, err
		}
		found, err := parseFixtures(file, data)
		if err != nil {
			return nil, err
		}
		all = append(all, found...)
	}
	if len(all) == 0 {
		return nil, usagef("there is no fixture in %s", strings.Join(files, ", "))
	}
	return all, nil
}

// parseFixtures reads a file: an array of elements, or one element after another, as JSON Lines
// have them.
func parseFixtures(file string, data []byte) ([]fixture, error) {
	elements, many, err := elementsOf(data)
	if err != nil {
		return nil, usagef("%s is not JSON: %s", file, sentence(err))
	}
	fixtures := make([]fixture, len(elements))
	for i, element := range elements {
		f := &fixtures[i]
		*f = fixture{file: file, label: file, element: element}
		if many {
			f.label = fmt.Sprintf("%s#%d", file, i)
		}
		if err := f.parse(); err != nil {
			return nil, err
		}
	}
	return fixtures, nil
}

// parse reads the element: {handoff, snapshot?, expect?, name?, comment?}, or a handoff by itself.
func (f *fixture) parse() error {
	if f.element.Kind() != '{' {
		return usagef("%s: a fixture is an object, not %s", f.label, short(f.element))
	}
	var members map[string]jsontext.Value
	if err := json.Unmarshal(f.element, &members, lenient); err != nil {
		return usagef("%s: %v", f.label, err)
	}
	if members["handoff"] != nil {
		if err := f.parseParts(); err != nil {
			return err
		}
	} else {
		_, isHandoff := members["proposal"] // which may have members beyond the contract's
		for _, member := range []string{"expect", "snapshot"} {
			if members[member] != nil && !isHandoff {
				return usagef("%s: a fixture with the member %s needs the member handoff", f.label,
					member)
			}
		}
		f.Handoff = f.element
	}
	var h struct {
		Proposal struct {
			TownID string `json:"townId"`
		} `json:"proposal"`
	}
	if json.Unmarshal(f.Handoff, &h, lenient) == nil {
		f.town = h.Proposal.TownID
	}
	return nil
}

// parseParts reads the members of a fixture that is not a handoff by itself.
func (f *fixture) parseParts() error {
	err := json.Unmarshal(f.element, &f.fixtureParts, lenient, json.RejectUnknownMembers(true))
	if err != nil {
		return usagef("%s: %s", f.label, memberError(err))
	}
	if f.Snapshot.Kind() == 'n' {
		f.Snapshot = nil
	}
	if s := f.Expect.Status; s != "" && !slices.Contains(handoff.Statuses(), s) {
		return usagef("%s: expect: there is no status %q", f.label, s)
	}
	if f.Name != "" {
		f.label += " (" + show(f.Name) + ")"
	}
	decisions := []string{"", messages.Approve, messages.Reject}
	outcomes := []apply.Status{apply.Applied, apply.Refused}
	switch {
	case f.setsOutcome() && f.Snapshot == nil:
		return usagef("%s: a fixture with game or approval needs the member snapshot", f.label)
	case f.Game != nil && !slices.Contains(outcomes, f.Game.Status):
		return usagef("%s: game: the status is applied or refused, not %q", f.label, f.Game.Status)
	case f.Approval != nil && !slices.Contains(decisions, f.Approval.Decision):
		return usagef("%s: approval: the decision is approve or reject, not %q", f.label,
			f.Approval.Decision)
	}
	return nil
}

// setsOutcome reports whether the fixture has the outcome of a game or a person.
func (f *fixture) setsOutcome() bool { return f.Game != nil || f.Approval != nil }

// memberError describes an invalid member of a fixture in words of JSON.
func memberError(err error) string {
	semantic, ok := errors.AsType[*json.SemanticError](err)
	if !ok {
		return sentence(err)
	}
	path := string(semantic.JSONPointer)
	if errors.Is(err, json.ErrUnknownName) {
		return fmt.Sprintf("there is no member %s: a fixture has the members name, comment, "+
			"handoff, snapshot, game, approval and expect, and expect has status, reasonCode, "+
			"result, resultBytes and error", path)
	}
	kinds := map[jsontext.Kind]string{
		'0': "a number", '"': "a string", 't': "a boolean", 'f': "a boolean",
		'n': "null", '{': "an object", '[': "an array",
	}
	return fmt.Sprintf("%s cannot be %s", orWhole(path), kinds[semantic.JSONKind])
}

// replayed is the outcome of a fixture.
type replayed struct {
	outcome   string       // the result's status, or refusedOutcome if there was no result
	failure   *mismatch    // nil if everything is as expected
	unchecked bool         // the fixture expects nothing
	answered  *expectation // all that could be expected of the answer; nil if there was none
	updated   bool         // the fixture expects the answer from now on
	took      time.Duration
}

// refusedOutcome counts the handoffs that got an error reply.
const refusedOutcome = "refused"

// mismatch has the differences between a fixture's answer and the expected one.
type mismatch struct {
	Fixture  string   `json:"fixture"`
	Expected string   `json:"expected"`
	Got      string   `json:"got"`
	Differs  []string `json:"differs,omitempty"`
}

// judgeRefusal compares an error reply with the expected answer.
func (f *fixture) judgeRefusal(refused *client.ReplyError) replayed {
	r := replayed{outcome: refusedOutcome, answered: &expectation{Error: refused.Code}}
	if refused.Code == f.Expect.Error {
		return r
	}
	r.failure = &mismatch{
		Fixture: f.label, Expected: f.Expect.String(), Got: "error " + refused.Error(),
	}
	for _, d := range refused.Details {
		r.failure.Differs = append(r.failure.Differs, orWhole(d.Path)+": "+d.Message)
	}
	return r
}

// judgeResult compares a result with the expected answer.
func (f *fixture) judgeResult(got *client.Outcome) replayed {
	e, status, reason := &f.Expect, got.Result.Status, got.Result.ReasonCode
	r := replayed{outcome: string(status), unchecked: !e.compares(), answered: &expectation{
		Status: status, ReasonCode: reason, Result: got.JSON, ResultBytes: string(got.JSON),
	}}
	differs := differences(e.Result, got.JSON)
	if e.ResultBytes != "" && e.ResultBytes != string(got.JSON) {
		if differs = differences(jsontext.Value(e.ResultBytes), got.JSON); differs == nil {
			differs = []string{"the bytes of the result: the same values, written in another way"}
		}
	}
	if e.Error != "" || len(differs) > 0 || cmp.Or(e.Status, status) != status ||
		cmp.Or(e.ReasonCode, reason) != reason {
		r.failure = &mismatch{
			Fixture: f.label, Expected: e.String(), Differs: differs,
			Got: fmt.Sprintf("%s %s (run %s)", status, reason, got.RunID),
		}
	}
	return r
}

// String lists the expectations.
func (e *expectation) String() string {
	var parts []string
	for _, part := range []string{string(e.Status), string(e.ReasonCode)} {
		if part != "" {
			parts = append(parts, part)
		}
	}
	if e.Result != nil {
		parts = append(parts, "the result given")
	}
	if e.ResultBytes != "" {
		parts = append(parts, "the bytes of the result given")
	}
	if e.Error != "" {
		parts = append(parts, "error "+e.Error)
	}
	return cmp.Or(strings.Join(parts, " "), "a result")
}

// maxDifferences bounds how many differences of one result are printed.
const maxDifferences = 8

// differences lists the differences of two JSON values; none if want is nil.
func differences(want, got jsontext.Value) []string {
	if want == nil {
		return nil
	}
	wantTree, err := schemas.Decode(want, schemas.Limits{})
	if err != nil {
		return []string{"the expectation cannot be compared: " + sentence(err)}
	}
	gotTree, err := schemas.Decode(got, schemas.Limits{})
	if err != nil {
		return []string{"the result cannot be compared: " + sentence(err)}
	}
	var found []string
	for _, c := range handoff.Differences(wantTree, gotTree, false) {
		found = append(found, fmt.Sprintf("%s: expected %s, got %s", orWhole(c.Path),
			orNone(c.Before), orNone(c.After)))
	}
	if len(found) > maxDifferences {
		found = append(found[:maxDifferences],
			fmt.Sprintf("and %d more", len(found)-maxDifferences))
	}
	return found
}

// orNone names a value that may be missing.
func orNone(value jsontext.Value) string { return cmp.Or(string(value), "none") }
