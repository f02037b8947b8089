package main

import (
	"cmp"
	"fmt"
	"strings"
	"time"

	"github.com/go-json-experiment/json/jsontext"

	"worldengine/handoff"
	"worldengine/schemas"
	"worldengine/worldengine/client"
)

// replayed is what became of a fixture.
type replayed struct {
	// outcome is the result's status, or "refused" where there was no result.
	outcome string
	// failure is nil where everything is as expected.
	failure *mismatch
	// unchecked reports that the fixture expects nothing.
	unchecked bool
	// answered has all that an expectation of this answer could have; nil where there was none.
	answered *expectation
	// updated reports that the fixture expects the answer from now on.
	updated bool
	took    time.Duration
}

// mismatch says how a fixture's answer differs from what was expected.
type mismatch struct {
	Fixture  string   `json:"fixture"`
	Expected string   `json:"expected"`
	Got      string   `json:"got"`
	Differs  []string `json:"differs,omitempty"`
}

// refusedOutcome counts the handoffs that got an error reply.
const refusedOutcome = "refused"

// judgeRefusal compares an error reply with what f expects.
func judgeRefusal(f *fixture, refused *client.ReplyError) replayed {
	r := replayed{outcome: refusedOutcome, answered: &expectation{Error: refused.Code}}
	if refused.Code == f.expect.Error {
		return r
	}
	r.failure = &mismatch{
		Fixture: f.label, Expected: f.expect.String(), Got: "error " + refused.Error(),
	}
	for _, d := range refused.Details {
		r.failure.Differs = append(r.failure.Differs, orWhole(d.Path)+": "+d.Message)
	}
	return r
}

// judgeResult compares a result with what f expects.
func judgeResult(f *fixture, got answer) replayed {
	e := &f.expect
	r := replayed{outcome: string(got.parsed.Status), unchecked: !e.compares(),
		answered: &expectation{
			Status: got.parsed.Status, ReasonCode: got.parsed.ReasonCode,
			Result: got.Result, ResultBytes: string(got.Result),
		}}
	differs := differences(e.Result, got.Result)
	if e.ResultBytes != "" && e.ResultBytes != string(got.Result) {
		if differs = differences(jsontext.Value(e.ResultBytes), got.Result); differs == nil {
			differs = []string{"the bytes of the result: the same values, written in another way"}
		}
	}
	if e.Error != "" || len(differs) > 0 ||
		e.Status != "" && e.Status != got.parsed.Status ||
		e.ReasonCode != "" && e.ReasonCode != got.parsed.ReasonCode {
		r.failure = &mismatch{
			Fixture: f.label, Expected: e.String(), Differs: differs,
			Got: fmt.Sprintf("%s %s (run %s)", got.parsed.Status, got.parsed.ReasonCode, got.RunID),
		}
	}
	return r
}

// String says in short what is expected.
func (e *expectation) String() string {
	var parts []string
	add := func(part string, given bool) {
		if given {
			parts = append(parts, part)
		}
	}
	add(string(e.Status), e.Status != "")
	add(string(e.ReasonCode), e.ReasonCode != "")
	add("the result given", e.Result != nil)
	add("the bytes of the result given", e.ResultBytes != "")
	add("error "+e.Error, e.Error != "")
	if len(parts) == 0 {
		return "a result"
	}
	return strings.Join(parts, " ")
}

// maxDifferences bounds how many differences of one result are printed.
const maxDifferences = 8

// differences says where got differs from want as JSON values; want nil means that anything will
// do.
func differences(want, got jsontext.Value) []string {
	if want == nil {
		return nil
	}
	wantTree, err := schemas.Decode(want, schemas.Limits{})
	if err != nil {
		return []string{"what is expected cannot be compared: " + sentence(err)}
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
