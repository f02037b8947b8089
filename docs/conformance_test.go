package docs_test

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// contract is one contract and its sections that oblige, in their order, each with how many rows
// its obligations take at least. It was written from the contracts, not from the tables.
type contract struct {
	title    string
	sections []section
}

type section struct {
	id   string
	rows int
}

var contracts = []contract{
	{"Run Events Contract v2.0.1", []section{
		{"1.2", 1}, {"1.3", 4}, {"2.1", 1}, {"2.2", 2}, {"2.3", 1}, {"2.4", 4}, {"2.5", 4}, {"2.5.1", 7},
		{"2.5.2", 2}, {"2.6", 1}, {"3.1", 9}, {"3.2", 3}, {"3.3", 3}, {"4", 1}, {"5.1", 1}, {"5.2", 1},
		{"5.3", 1}, {"5.3 L1", 6}, {"5.3 L2", 3}, {"5.3 L3", 5}, {"5.4", 2},
	}},
	{"Execution Semantics Contract v2.0.0", []section{
		{"1", 1}, {"2.2", 4}, {"2.3", 1}, {"3.1", 1}, {"3.2", 3}, {"3.3", 4}, {"4", 4}, {"5", 1}, {"6", 4},
	}},
	{"Glossary Contract v2.0.0", []section{{"1", 1}, {"2", 1}, {"3", 3}, {"4", 4}, {"5", 1}}},
	{"Execution Semantics Contract v1", []section{
		{"1.0.1", 4}, {"1.1", 7}, {"1.2", 1}, {"1.3", 3}, {"1.3.1", 4}, {"1.4", 2}, {"1.5", 9}, {"1.5.1", 3},
		{"2", 2}, {"3", 3}, {"4", 5}, {"5", 1}, {"6", 6}, {"Schema Evolution", 5}, {"A.1", 7}, {"A.2", 2},
	}},
	{"Execution Handoff Contract", []section{
		{"Field Semantics", 6}, {"Preconditions", 2}, {"Stale Checks", 3}, {"Retry And Duplicate Handling", 4},
		{"Acceptance vs Rejection", 3}, {"Status Semantics", 4}, {"Evaluation Block", 3},
		{"Result Identity", 2}, {"Recommended Engine Behavior", 1},
	}},
}

// row is one row of a table.
type row struct {
	line                        int
	section, says, where, proof string
}

// table is what stands below the heading of a contract.
type table struct {
	line  int
	title string
	rows  []row
}

const (
	columns   = "| § | says | where | proof |"
	separator = "|---|---|---|---|"
)

// parseTables reads the tables of a document: a heading of level two, and below it exactly one table
// with the four columns. Text may stand around a table, not within it.
func parseTables(doc string) (tables []table, problems []error) {
	report := func(line int, format string, args ...any) {
		problems = append(problems, fmt.Errorf("line %d: %s", line, fmt.Sprintf(format, args...)))
	}
	const outside, header, body, done = 0, 1, 2, 3
	state := done // a table before the first heading has no contract
	for i, text := range strings.Split(doc, "\n") {
		line := i + 1
		switch title, heading := strings.CutPrefix(text, "## "); {
		case heading:
			if state == outside || state == header {
				report(line, "%q has no table", tables[len(tables)-1].title)
			}
			tables, state = append(tables, table{line: line, title: title}), outside
		case !strings.HasPrefix(text, "|"):
			switch {
			case state == header:
				report(line, "a table without its second line")
				state = done
			case state == body:
				state = done
			}
		case state == outside:
			if text != columns {
				report(line, "a table starts with %q, not with %q", columns, text)
			}
			state = header
		case state == header:
			if text != separator {
				report(line, "the second line of a table is %q, not %q", separator, text)
			}
			state = body
		case state == body:
			r, err := parseRow(text)
			if err != nil {
				report(line, "%v", err)
				continue
			}
			r.line = line
			current := &tables[len(tables)-1]
			current.rows = append(current.rows, r)
		default:
			report(line, "a table that is not the one of a contract")
			state = done
		}
	}
	if state == outside || state == header {
		problems = append(problems, fmt.Errorf("%q has no table", tables[len(tables)-1].title))
	}
	return tables, problems
}

// parseRow reads a row: four cells, none of them empty. A | within a cell is written as \|.
func parseRow(text string) (row, error) {
	const mark = "\x00"
	rest, ok := strings.CutPrefix(strings.ReplaceAll(text, `\|`, mark), "| ")
	rest, closed := strings.CutSuffix(rest, " |")
	if !ok || !closed {
		return row{}, errors.New(`a row starts with "| " and ends with " |"`)
	}
	cells := strings.Split(rest, " | ")
	if len(cells) != 4 || strings.Contains(strings.Join(cells, ""), "|") {
		return row{}, fmt.Errorf("a row has 4 cells, not %d", strings.Count(rest, "|")+1)
	}
	for i := range cells {
		cells[i] = strings.ReplaceAll(cells[i], mark, "|")
		if strings.TrimSpace(cells[i]) == "" {
			return row{}, fmt.Errorf("cell %d is empty", i+1)
		}
		if cells[i] != strings.TrimSpace(cells[i]) {
			return row{}, fmt.Errorf("cell %d has white space around it", i+1)
		}
	}
	return row{section: cells[0], says: cells[1], where: cells[2], proof: cells[3]}, nil
}

// quoted returns what a text has in backquotes, and whether that is all of it but for separators.
func quoted(text string) (names []string, only bool, err error) {
	parts := strings.Split(text, "`")
	if len(parts)%2 == 0 {
		return nil, false, errors.New("a backquote has no other")
	}
	only = len(parts) > 1
	for i, part := range parts {
		if i%2 == 1 {
			names = append(names, part)
			continue
		}
		between := ", "
		if i == 0 || i == len(parts)-1 {
			between = ""
		}
		only = only && part == between
	}
	return names, only, nil
}

// status is what the proof cell of a row says.
type status string

const (
	proven        status = "proven"
	notApplicable status = "not applicable"
	open          status = "open"
)

// statusOf reads a proof cell: the names of tests and nothing else, or one of the two other statuses
// with its reason, which may name tests too.
func statusOf(proof string) (status, []string, error) {
	names, only, err := quoted(proof)
	if err != nil {
		return "", nil, err
	}
	if only {
		return proven, names, nil
	}
	for _, s := range []status{notApplicable, open} {
		reason, ok := strings.CutPrefix(proof, string(s)+": ")
		switch {
		case !ok:
			continue
		case strings.TrimSpace(reason) == "":
			return "", nil, fmt.Errorf("%q gives no reason", s)
		}
		return s, names, nil
	}
	return "", nil, fmt.Errorf("a proof is names of tests in backquotes, or %q or %q with a reason; not %q",
		notApplicable, open, proof)
}

// nowhere is the where cell of a row that nothing implements.
const nowhere = "–"

// check says what is wrong with a row, and how it stands.
func (m *module) check(r *row) (status, []error) {
	var problems []error
	s, tests, err := statusOf(r.proof)
	if err != nil {
		problems = append(problems, err)
	}
	for _, name := range tests {
		if err := m.checkTest(name); err != nil {
			problems = append(problems, err)
		}
	}
	if r.where == nowhere {
		if s == proven {
			problems = append(problems, errors.New("what is proven is implemented somewhere"))
		}
		return s, problems
	}
	names, only, err := quoted(r.where)
	if err == nil && !only {
		err = fmt.Errorf("a place is identifiers in backquotes, or %s; not %q", nowhere, r.where)
	}
	if err != nil {
		problems = append(problems, err)
	}
	for _, name := range names {
		if err := m.checkCode(name); err != nil {
			problems = append(problems, err)
		}
	}
	return s, problems
}

// checkDocument says what is wrong with a document that has the tables of the contracts, and counts
// its rows by status.
func checkDocument(m *module, contracts []contract, doc string) (counts map[status]int, problems []error) {
	tables, problems := parseTables(doc)
	counts = map[status]int{}
	for i, c := range contracts {
		if i >= len(tables) || tables[i].title != c.title {
			problems = append(problems, fmt.Errorf("contract %d is not %q", i+1, c.title))
			return counts, problems
		}
	}
	for _, t := range tables[len(contracts):] {
		problems = append(problems, fmt.Errorf("line %d: %q is no contract", t.line, t.title))
	}
	for i, c := range contracts {
		problems = append(problems, checkSections(&c, &tables[i])...)
		said := map[string]bool{}
		for _, r := range tables[i].rows {
			s, wrong := m.check(&r)
			counts[s]++
			if said[r.section+r.says] {
				wrong = append(wrong, errors.New("a row is there twice"))
			}
			said[r.section+r.says] = true
			for _, err := range wrong {
				problems = append(problems, fmt.Errorf("line %d, §%s: %w", r.line, r.section, err))
			}
		}
	}
	return counts, problems
}

// checkSections says which sections of a contract are missing, short of rows, unknown or not in their
// place.
func checkSections(c *contract, t *table) (problems []error) {
	have, last := map[string]int{}, 0
	for _, r := range t.rows {
		have[r.section]++
		at := slices.IndexFunc(c.sections, func(s section) bool { return s.id == r.section })
		switch {
		case at < 0:
			problems = append(problems, fmt.Errorf("line %d: %q has no section %q that obliges", r.line, c.title, r.section))
		case at < last:
			problems = append(problems, fmt.Errorf("line %d: section %q is not in its place", r.line, r.section))
		default:
			last = at
		}
	}
	for _, s := range c.sections {
		if have[s.id] < s.rows {
			problems = append(problems, fmt.Errorf("%q, section %q: %d rows, at least %d are due",
				c.title, s.id, have[s.id], s.rows))
		}
	}
	return problems
}

// TestConformance holds conformance.md against the code and the tests that it names.
func TestConformance(t *testing.T) {
	t.Parallel()
	doc, err := os.ReadFile("conformance.md")
	require.NoError(t, err)
	counts, problems := checkDocument(openModule(".."), contracts, string(doc))
	for _, problem := range problems {
		t.Errorf("conformance.md: %v", problem)
	}
	total := counts[proven] + counts[notApplicable] + counts[open]
	summary := fmt.Sprintf("%d rows: %d proven, %d not applicable, %d open.",
		total, counts[proven], counts[notApplicable], counts[open])
	if !strings.Contains(string(doc), "\n"+summary+"\n") {
		t.Errorf("conformance.md does not say what is true now: %s", summary)
	}
}

// someModule is a module of two packages to check documents against.
func someModule(t *testing.T) *module {
	t.Helper()
	root := t.TempDir()
	for name, text := range map[string]string{
		"a/a.go": "package a\n\n// F is not func TestOld(t *testing.T) {}\nfunc F() {}\n\n" +
			"type T struct{ Field, other int }\n\nfunc (*T) M() {}\n\ntype G[K any] struct{}\n\n" +
			"func (G[K]) N() {}\n\ntype I interface{ P() }\n\nconst (\n\tOne = 1\n\ttwo = 2\n)\n",
		"a/a_test.go": "package a_test\n\nimport \"testing\"\n\n// func TestInComment(t *testing.T) {}\n" +
			"func TestReal(t *testing.T) {}\nfunc FuzzReal(f *testing.F) {}\nfunc BenchmarkReal(b *testing.B) {}\n" +
			"func TestMain(m *testing.M) {}\nfunc Testify(t *testing.T) {}\nfunc TestHelper(t *testing.T, n int) {}\n" +
			"func helper() {}\n\ntype s struct{}\n\nfunc (s) TestMethod(t *testing.T) {}\n\n" +
			"const text = `func TestInText(t *testing.T) {}`\n",
		"a/b/b.go":      "package b\n\nvar V = 1\n",
		"a/b/b_test.go": "package b\n\nimport \"testing\"\n\nfunc TestOfB(t *testing.T) {}\n",
		"a/x.json":      "{}\n",
	} {
		file := filepath.Join(root, filepath.FromSlash(name))
		require.NoError(t, os.MkdirAll(filepath.Dir(file), 0o755))
		require.NoError(t, os.WriteFile(file, []byte(text), 0o644))
	}
	return openModule(root)
}

var someContracts = []contract{
	{"First Contract", []section{{"1", 1}, {"2.1", 2}}},
	{"Second Contract", []section{{"Scope", 1}}},
}

// someDocument is in order; the tests break it.
const someDocument = "# Conformance\n\nText.\n\n## First Contract\n\n" + columns + "\n" + separator + "\n" +
	"| 1 | MUST a \\| b | `a.F`, `a.T.M`, `a.G.N`, `a.I.P`, `a.T.Field` | `a.TestReal`, `a/b.TestOfB` |\n" +
	"| 2.1 | MUST c | `a/b.V`, `a/x.json`, `a.One`, `a.two` | `a.FuzzReal`, `a.BenchmarkReal` |\n" +
	"| 2.1 | SHOULD d | – | not applicable: there is no d |\n\n" +
	"## Second Contract\n\nText.\n\n" + columns + "\n" + separator + "\n" +
	"| Scope | MUST NOT e | `a.F` | open: half of it, by `a.TestReal` |\n\nText.\n"

func TestTheCheckerPassesWhatIsInOrder(t *testing.T) {
	t.Parallel()
	counts, problems := checkDocument(someModule(t), someContracts, someDocument)
	require.Empty(t, problems)
	require.Equal(t, map[status]int{proven: 2, notApplicable: 1, open: 1}, counts)
}

func TestTheCheckerFailsWhatIsBroken(t *testing.T) {
	t.Parallel()
	for _, c := range []struct{ name, old, new, says string }{
		{"no such test", "`a.TestReal`, ", "`a.TestUnreal`, ", `package "a" has no test TestUnreal`},
		{"a test of another package", "`a/b.TestOfB`", "`a.TestOfB`", `package "a" has no test TestOfB`},
		{"a test of no package", "`a/b.TestOfB`", "`c.TestOfB`", `there is no package "c"`},
		{"a package outside", "`a/b.TestOfB`", "`../a.TestReal`", "no path within the module"},
		{"a test in a comment", "`a.TestReal`, ", "`a.TestInComment`, ", "has no test TestInComment"},
		{"a test in a text", "`a.TestReal`, ", "`a.TestInText`, ", "has no test TestInText"},
		{"a test in the code's comment", "`a.TestReal`, ", "`a.TestOld`, ", "has no test TestOld"},
		{"a method", "`a.TestReal`, ", "`a.TestMethod`, ", "has no test TestMethod"},
		{"a helper", "`a.TestReal`, ", "`a.helper`, ", "has no test helper"},
		{"a helper that is named as a test", "`a.TestReal`, ", "`a.TestHelper`, ", "has no test TestHelper"},
		{"what runs tests", "`a.TestReal`, ", "`a.TestMain`, ", "has no test TestMain"},
		{"a name that go test does not run", "`a.TestReal`, ", "`a.Testify`, ", "has no test Testify"},
		{"an open row that names no test", "by `a.TestReal`", "by `a.TestUnreal`", "has no test TestUnreal"},
		{"a name without package", "`a.TestReal`, ", "`TestReal`, ", `"TestReal" is not a package and a name`},
		{"code as a proof", "`a.TestReal`, ", "`a.F`, ", "has no test F"},
		{"no such function", "`a.F`, `a.T.M`", "`a.Gone`", `package "a" declares no Gone`},
		{"no such method", "`a.T.M`", "`a.T.Gone`", "declares no T.Gone"},
		{"no such field", "`a.T.Field`", "`a.T.Fields`", "declares no T.Fields"},
		{"a test as a place", "`a/b.V`", "`a/b.TestOfB`", "declares no TestOfB"},
		{"no such file", "`a/x.json`", "`a/y.json`", `there is no file "a/y.json"`},
		{"a file outside", "`a/x.json`", "`../x.json`", `there is no file "../x.json"`},
		{"a place in prose", "`a.F` | open", "in F | open", "a place is identifiers in backquotes"},
		{"places without a comma", "`a.T.M`, `a.G.N`", "`a.T.M` `a.G.N`", "a place is identifiers in backquotes"},
		{"proven nowhere", "`a/b.V`, `a/x.json`, `a.One`, `a.two`", "–", "what is proven is implemented somewhere"},
		{"a proof in prose", "not applicable: there is no d", "obviously", "a proof is names of tests"},
		{"names and prose", "`a.TestReal`, `a/b.TestOfB`", "`a.TestReal` and others", "a proof is names of tests"},
		{"another status", "open: half", "done: half", "a proof is names of tests"},
		{"a status in capitals", "open: half", "Open: half", "a proof is names of tests"},
		{"no reason", "not applicable: there is no d", "not applicable:", "a proof is names of tests"},
		{"a backquote alone", "`a.TestReal`, ", "`a.TestReal, ", "a backquote has no other"},
		{"an empty proof", "| not applicable: there is no d |", "|  |", "cell 4 is empty"},
		{"no proof", " | not applicable: there is no d |", " |", "a row has 4 cells, not 3"},
		{"a cell too many", "there is no d |", "there is no d | – |", "a row has 4 cells, not 5"},
		{"a | that is not escaped", `a \| b`, "a | b", "a row has 4 cells, not 5"},
		{"a | without spaces", `a \| b`, "a|b", "a row has 4 cells, not 5"},
		{"an empty section", "| 1 | MUST a", "|  | MUST a", "cell 1 is empty"},
		{"a row without its end", "there is no d |\n", "there is no d\n", `a row starts with "| "`},
		{"white space", "| SHOULD d |", "|  SHOULD d |", "cell 2 has white space around it"},
		{"a section without rows", "| 1 | MUST a", "| 2.1 | MUST a", `section "1": 0 rows, at least 1 are due`},
		{"a row less", "| 2.1 | SHOULD d | – | not applicable: there is no d |\n", "", `section "2.1": 1 rows, at least 2 are due`},
		{"an unknown section", "| 2.1 | SHOULD d", "| 2.2 | SHOULD d", `"First Contract" has no section "2.2"`},
		{"a section out of order", "| 2.1 | MUST c", "| 1 | MUST c2 | `a.F` | `a.TestReal` |\n| 2.1 | MUST c3 | `a.F` | `a.TestReal` |\n| 1 | MUST c", "is not in its place"},
		{"a row twice", "| 2.1 | SHOULD d |", "| 2.1 | MUST c |", "a row is there twice"},
		{"other columns", columns + "\n" + separator + "\n| 1", "| a | b | c | d |\n" + separator + "\n| 1", "a table starts with"},
		{"another second line", separator + "\n| 1", "|:-:|---|---|---|\n| 1", "the second line of a table is"},
		{"no second line", separator + "\n| 1", "\n| 1", "a table without its second line"},
		{"a second table", "Text.\n\n## Second", "Text.\n\n" + columns + "\n\n## Second", "not the one of a contract"},
		{"a gap in a table", "| 2.1 | SHOULD", "\n| 2.1 | SHOULD", "not the one of a contract"},
		{"a missing contract", "## Second Contract", "Second Contract", `contract 2 is not "Second Contract"`},
		{"a contract under another title", "## First Contract", "## First", `contract 1 is not "First Contract"`},
		{"a contract too many", "\nText.\n", "\nText.\n\n## Third\n\n" + columns + "\n" + separator + "\n", `"Third" is no contract`},
		{"a contract without a table", "## Second Contract\n", "## Other\n\n## Second Contract\n", `"Other" has no table`},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			doc := someDocument
			if c.name == "a second table" {
				doc = strings.Replace(doc, "is no d |\n", "is no d |\n\nText.\n", 1)
			}
			at := strings.LastIndex(doc, c.old)
			if strings.Contains(c.old, "`a.TestReal`, ") || strings.Contains(c.old, columns) {
				at = strings.Index(doc, c.old)
			}
			require.GreaterOrEqual(t, at, 0)
			broken := doc[:at] + c.new + doc[at+len(c.old):]
			_, problems := checkDocument(someModule(t), someContracts, broken)
			require.ErrorContains(t, errors.Join(problems...), c.says)
		})
	}
}
