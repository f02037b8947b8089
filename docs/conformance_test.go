package docs_test

import (
	"errors"
	"fmt"
	"regexp"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// contracts are the contracts in the order of conformance.md, each with its sections that oblige.
// The lists were written from the contracts, not from the tables.
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
}

// quoted finds names in backquotes; onlyQuoted matches a cell that has nothing but such names.
var (
	quoted     = regexp.MustCompile("`([^`]+)`")
	onlyQuoted = regexp.MustCompile("^`[^`]+`(, `[^`]+`)*$")
	unproven   = regexp.MustCompile(`^(not applicable|open|deviates): \S`)
)

// checkRow returns what is wrong with a row of a table: four cells, the third places in the code,
// or a dash, and the fourth tests, or why the row has no proof.
func (m *module) checkRow(row string) error {
	cells := strings.Split(strings.Trim(strings.ReplaceAll(row, `\|`, ""), "|"), "|")
	if len(cells) != 4 {
		return fmt.Errorf("a row has 4 cells, not %d", len(cells))
	}
	where, proof := strings.TrimSpace(cells[2]), strings.TrimSpace(cells[3])
	var wrong []error
	if !onlyQuoted.MatchString(where) && (where != "–" || !unproven.MatchString(proof)) {
		wrong = append(wrong, fmt.Errorf("a place is identifiers in backquotes, not %q", where))
	}
	if !onlyQuoted.MatchString(proof) && !unproven.MatchString(proof) {
		wrong = append(wrong, fmt.Errorf("a proof is tests in backquotes, or the reason why "+
			"there is none, not %q", proof))
	}
	for _, name := range quoted.FindAllStringSubmatch(where, -1) {
		wrong = append(wrong, m.checkCode(name[1]))
	}
	for _, name := range quoted.FindAllStringSubmatch(proof, -1) {
		wrong = append(wrong, m.checkTest(name[1]))
	}
	return errors.Join(wrong...)
}

// conformance.md has a table for each contract, with a row at least for each section that obliges,
// and names only what there is.
func TestConformance(t *testing.T) {
	t.Parallel()
	code, tables := openModule(".."), strings.Split(read(t, "conformance.md"), "\n## ")[1:]
	require.Len(t, tables, len(contracts))
	for i, contract := range contracts {
		title, table, _ := strings.Cut(tables[i], "\n")
		require.Equal(t, contract.title, title)
		seen, last := map[string]bool{}, 0
		order := " " + contract.sections + " "
		for _, row := range strings.Split(table, "\n") {
			if !strings.HasPrefix(row, "| ") || strings.HasPrefix(row, "| § ") {
				continue
			}
			section, _, _ := strings.Cut(row[len("| "):], " ")
			at := strings.Index(order, " "+section+" ")
			require.GreaterOrEqual(t, at, last, "%s: section %s is unknown, or not in its place",
				title, section)
			require.False(t, seen[row], "twice: %s", row)
			seen[row], seen[section], last = true, true, at
			if err := code.checkRow(row); err != nil {
				t.Errorf("%s §%s: %v", title, section, err)
			}
		}
		for _, section := range strings.Fields(contract.sections) {
			require.True(t, seen[section], "%s: section %s has no row", title, section)
		}
	}
}

func TestTheCheckOfARow(t *testing.T) {
	t.Parallel()
	code := openModule("..")
	require.NoError(t, code.checkRow(
		"| 1 | MUST a \\| b | `handoff.Parse` | `docs.TestConformance`, `handoff.FuzzParse` |"))
	require.NoError(t, code.checkRow("| 1 | MUST c | – | not applicable: there is no c |"))
	for row, says := range map[string]string{
		"| 1 | MUST a | `handoff.Parse` |":                                "4 cells, not 3",
		"| 1 | a | b | `handoff.Parse` | `docs.TestConformance` |":        "4 cells, not 5",
		"| 1 | a | in Parse | `docs.TestConformance` |":                   "a place is identifiers",
		"| 1 | a | – | `docs.TestConformance` |":                          "a place is identifiers",
		"| 1 | a | `handoff.Gone` | `docs.TestConformance` |":             "declares no Gone",
		"| 1 | a | `schemas/gone.json` | `docs.TestConformance` |":        `there is no file "schemas/gone.json"`,
		"| 1 | a | `handoff.Parse` | `docs.TestGone` |":                   "has no test TestGone",
		"| 1 | a | `handoff.Parse` | `handoff.Parse` |":                   "has no test Parse",
		"| 1 | a | `handoff.Parse` | obviously |":                         "a proof is tests",
		"| 1 | a | `handoff.Parse` | `docs.TestConformance` and others |": "a proof is tests",
		"| 1 | a | `handoff.Parse` | open: |":                             "a proof is tests",
		"| 1 | a | `handoff.Parse` | open: half, by `docs.TestGone` |":    "has no test TestGone",
	} {
		require.ErrorContains(t, code.checkRow(row), says, row)
	}
}
