package town_test

import (
	"errors"
	"flag"
	"fmt"
	"strings"
	"testing"

	"github.com/go-json-experiment/json"
	"github.com/stretchr/testify/require"

	"worldengine/handoff"
	"worldengine/schemas"
	"worldengine/schemas/schemastest"
	"worldengine/worldengine/internal/core/town"
)

var rewrite = flag.Bool("rewrite", false, "write testdata/*.txt anew")

// TestScenarios plays testdata. Inputs:
//
//	> town: the town of snapshot, under the default rules
//	> {…}: the town is patched (JSON Merge Patch), or the violations of the patched one
//	> show: the town
//	> rules {…}: amounts of the rules other than the defaults
//	> VERB ARGUMENT: the changes that a command makes, or why it cannot be applied; the town stays
//	> if {…}: a precondition
//	> arguments TYPE: the arguments that a command can have now
func TestScenarios(t *testing.T) {
	t.Parallel()
	schemastest.Play(t, "testdata/*.txt", *rewrite, func(t *testing.T) func(string) []string {
		s := &scenario{t: t}
		return s.input
	})
}

type scenario struct {
	t     *testing.T
	state town.State
	rules town.Rules
}

func (s *scenario) input(input string) []string {
	word, rest, _ := strings.Cut(input, " ")
	switch {
	case word == "town":
		s.state, s.rules = town.NewState(snapshot()), town.DefaultRules()
		return nil
	case word == "show":
		return []string{string(s.state.Canonical)}
	case word[0] == '{' || word[0] == '[':
		return s.patch(decoded(s.t, []byte(input)))
	case word == "rules":
		require.NoError(s.t, json.Unmarshal([]byte(rest), &s.rules))
		require.NoError(s.t, s.rules.Validate())
		return nil
	case word == "if":
		var p handoff.Precondition
		require.NoError(s.t, json.Unmarshal([]byte(rest), &p))
		for _, f := range town.Evaluate([]handoff.Precondition{p}, s.state.Snapshot) {
			require.Equal(s.t, p.Kind, f.Kind)
			return []string{f.Detail}
		}
		return []string{"holds"}
	case word == "arguments":
		kind, ok := handoff.ProposalTypeNamed(rest)
		require.True(s.t, ok, rest)
		return []string{fmt.Sprint(s.state.Snapshot.Arguments(kind))}
	}
	return []string{s.apply(input)}
}

func (s *scenario) patch(patch any) (violations []string) {
	after, err := s.state.Patch(patch)
	require.Equal(s.t, parsed(s.t, s.state.Canonical), s.state, "the input stays unchanged")
	if err == nil {
		s.state = after
		return nil
	}
	invalid, ok := errors.AsType[*schemas.ValidationError](err)
	require.True(s.t, ok, "%v", err)
	require.Equal(s.t, schemas.Snapshot, invalid.Schema)
	for _, v := range invalid.Violations {
		violations = append(violations, strings.TrimSpace(v.Path+" "+v.Message))
	}
	return violations
}

// apply lists the members that a command changes.
func (s *scenario) apply(command string) string {
	for _, kind := range handoff.ProposalTypes() {
		argument, ok := strings.CutPrefix(command, kind.Spec().Verb+" ")
		if !ok {
			continue
		}
		after, reason := s.rules.Apply(s.state.Snapshot, propose(kind, argument))
		require.Equal(s.t, parsed(s.t, s.state.Canonical), s.state, "the input stays unchanged")
		if reason != "" {
			require.False(s.t, after.Exists())
			return string(reason)
		}
		requireSound(s.t, after)
		var changes []string
		for _, d := range handoff.Differences(decoded(s.t, s.state.Canonical),
			decoded(s.t, after.Canonical), true) {
			changes = append(changes, fmt.Sprintf("%s %s to %s", d.Path, d.Before, d.After))
		}
		return strings.Join(changes, "; ")
	}
	require.Fail(s.t, "no such input", command)
	return ""
}
