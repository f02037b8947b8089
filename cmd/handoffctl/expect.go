package main

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/go-json-experiment/json/jsontext"

	"worldengine/cmd/handoffctl/internal/client"
	"worldengine/handoff"
	"worldengine/schemas"
)

// replayed is what became of a fixture.
type replayed struct {
	// outcome is the result's status, or "refused" where there was no result.
	outcome string
	// failure is nil where everything is as expected.
	failure *mismatch
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
	r := replayed{outcome: refusedOutcome}
	if refused.Code == f.expect.Error {
		return r
	}
	r.failure = &mismatch{Fixture: f.label, Expected: f.expect.String(), Got: "error " + refused.Error()}
	for _, d := range refused.Details {
		r.failure.Differs = append(r.failure.Differs, orWhole(d.Path)+": "+d.Message)
	}
	return r
}

// judgeResult compares a result with what f expects.
func judgeResult(f *fixture, got answer) replayed {
	r := replayed{outcome: string(got.parsed.Status)}
	e := &f.expect
	differs := differences(e.Result, got.Result)
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
	add("error "+e.Error, e.Error != "")
	if len(parts) == 0 {
		return "a result"
	}
	return strings.Join(parts, " ")
}

// maxDifferences bounds how many differences are told of one result.
const maxDifferences = 8

// differences says where got differs from want as JSON values; want nil means that anything will do.
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
	found := differ(nil, "", wantTree, gotTree)
	if len(found) > maxDifferences {
		found = append(found[:maxDifferences], fmt.Sprintf("and %d more", len(found)-maxDifferences))
	}
	return found
}

// differ appends where two trees differ, in the order of their paths.
func differ(found []string, path string, want, got any) []string {
	wantObject, ok := want.(map[string]any)
	gotObject, both := got.(map[string]any)
	if !ok || !both {
		w, g := canonical(want), canonical(got)
		if w != g {
			found = append(found, fmt.Sprintf("%s: expected %s, got %s", orWhole(path), w, g))
		}
		return found
	}
	names := maps.Clone(wantObject)
	maps.Copy(names, gotObject)
	for _, name := range slices.Sorted(maps.Keys(names)) {
		below := path + schemas.Pointer(name)
		w, wanted := wantObject[name]
		g, given := gotObject[name]
		switch {
		case !wanted:
			found = append(found, fmt.Sprintf("%s: expected none, got %s", below, canonical(g)))
		case !given:
			found = append(found, fmt.Sprintf("%s: expected %s, got none", below, canonical(w)))
		default:
			found = differ(found, below, w, g)
		}
	}
	return found
}

func canonical(tree any) string { return string(handoff.AppendCanonical(nil, tree)) }
