package docs_test

import (
	"encoding/csv"
	"errors"
	"fmt"
	"regexp"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// contracts are the contracts in the order of conformance.csv, each with its sections that oblige.
// The lists were written from the contracts, not from the rows.
var contracts = []struct{ title, sections string }{
	{"Run Events Contract v2.0.1", "1.1 1.2 1.3 2.1 2.2 2.3 2.4 2.5 2.5.1 2.5.2 2.6 3.1 3.2 3.3 " +
		"4 5.1 5.2 5.3 5.4"},
	{"Execution Semantics Contract v2.0.0", "1 2.2 2.3 3.1 3.2 3.3 4 5 6"},
	{"Glossary Contract v2.0.0", "1 2 3 4 5"},
	{"Execution Semantics Contract v1", "1.0.1 1.1 1.2 1.3 1.3.1 1.4 1.5 1.5.1 2 3 4 5 6 Schema " +
		"A.1 A.2"},
	{"Execution Handoff Contract", "Field Preconditions Stale Retry Acceptance Status Evaluation " +
		"Result Recommended"},
	{"Reading events", "Live Pages Wait Rights Follow"}, // this engine's own
	{"World memory 1", "Request Reply"},
	{"AsyncAPI 3.0", "Document Operations"},
	{"Model Context Protocol 2025-11-25", "Transport Sessions Security Tools Resources Prompts Suite"},
	{"Many worlds", "Rights Metrics Commands Backup"}, // this engine's own
}

// quoted finds names in backquotes; onlyQuoted matches a cell that has such names alone.
var (
	quoted     = regexp.MustCompile("`([^`]+)`")
	onlyQuoted = regexp.MustCompile("^`[^`]+`(, `[^`]+`)*$")
	unproven   = regexp.MustCompile(`^(not applicable|open|deviates): \S`)
)

// checkRow returns the defects of a row's code and proof: code names places, or is a dash; proof
// names tests, or gives the reason why there are none.
func (m *module) checkRow(code, proof string) error {
	var wrong []error
	if !onlyQuoted.MatchString(code) && (code != "–" || !unproven.MatchString(proof)) {
		wrong = append(wrong, fmt.Errorf("a place is identifiers in backquotes, not %q", code))
	}
	if !onlyQuoted.MatchString(proof) && !unproven.MatchString(proof) {
		wrong = append(wrong, fmt.Errorf("a proof is tests in backquotes, or the reason why "+
			"there is none, not %q", proof))
	}
	for _, name := range quoted.FindAllStringSubmatch(code, -1) {
		wrong = append(wrong, m.checkCode(name[1]))
	}
	for _, name := range quoted.FindAllStringSubmatch(proof, -1) {
		wrong = append(wrong, m.checkTest(name[1]))
	}
	return errors.Join(wrong...)
}

func TestCheckRow(t *testing.T) {
	t.Parallel()
	m := openModule("..")
	require.NoError(t, m.checkRow("`handoff.Parse`", "`docs.TestConformance`, `handoff.FuzzParse`"))
	require.NoError(t, m.checkRow("–", "not applicable: there is no c"))
	for row, says := range map[[2]string]string{
		{"in Parse", "`docs.TestConformance`"}:                              "a place is identifiers",
		{"–", "`docs.TestConformance`"}:                                     "a place is identifiers",
		{"`handoff.Gone`", "`docs.TestConformance`"}:                        "declares no Gone",
		{"`schemas/gone.json`", "`docs.TestConformance`"}:                   `there is no file "schemas/gone.json"`,
		{"`handoff.Parse`", "`docs.TestGone`"}:                              "has no test TestGone",
		{"`handoff.Parse`", "`handoff.Parse`"}:                              "has no test Parse",
		{"`handoff.Parse`", "`worldengine/internal/serve/server.TestMain`"}: "has no test TestMain",
		{"`handoff.Parse`", "obviously"}:                                    "a proof is tests",
		{"`handoff.Parse`", "`docs.TestConformance` and others"}:            "a proof is tests",
		{"`handoff.Parse`", "open:"}:                                        "a proof is tests",
		{"`handoff.Parse`", "open: half, by `docs.TestGone`"}:               "has no test TestGone",
	} {
		require.ErrorContains(t, m.checkRow(row[0], row[1]), says, row)
	}
}

// conformance.csv has a row at least for each section that obliges, in the order of the contracts,
// and names only declarations, files and tests that exist. Columns: contract, section, obligation,
// code, and proof: the tests that prove the row together, or "not applicable:", "deviates:" or
// "open:" with the reason.
func TestConformance(t *testing.T) {
	t.Parallel()
	rows, err := csv.NewReader(strings.NewReader(read(t, "conformance.csv"))).ReadAll()
	require.NoError(t, err)
	require.Equal(t, []string{"contract", "section", "obligation", "code", "proof"}, rows[0])
	code, next := openModule(".."), 1
	for _, contract := range contracts {
		seen, last := map[string]bool{}, 0
		order := " " + contract.sections + " "
		for ; next < len(rows) && rows[next][0] == contract.title; next++ {
			section, _, _ := strings.Cut(rows[next][1], " ")
			text := strings.Join(rows[next], "|")
			at := strings.Index(order, " "+section+" ")
			require.GreaterOrEqual(t, at, last, "%s: section %s is unknown, or not in its place",
				contract.title, section)
			require.False(t, seen[text], "twice: %s", text)
			seen[text], seen[section], last = true, true, at
			if err := code.checkRow(rows[next][3], rows[next][4]); err != nil {
				t.Errorf("%s §%s: %v", contract.title, section, err)
			}
		}
		for _, section := range strings.Fields(contract.sections) {
			require.True(t, seen[section], "%s: section %s has no row", contract.title, section)
		}
	}
	require.Len(t, rows, next, "a row of an unknown contract, or not in its place")
}
