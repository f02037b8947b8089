//go:build mutants

package docs_test

import (
	"cmp"
	"encoding/csv"
	"encoding/json"
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// chosen are mutants of rows whose code does more than the row says, or has none that is broken by
// itself, by how the obligation begins.
var chosen = []struct{ row, file, from, to string }{
	{"emittedAt is when what an event tells", "worldengine/internal/core/runlog/producer.go",
		"at := e.At",
		"at := time.Time{}"},
	{"A run that is queued for more than 100 ms", "worldengine/internal/engine/waiting.go",
		"const queuedMoment = 100 * time.Millisecond",
		"const queuedMoment = 2 * time.Second"},
	{"RunApproved makes a run APPROVED", "worldengine/internal/core/approval/list.go",
		"return a.HandoffID == handoffID && a.HandoffHash == handoffHash",
		"return a.HandoffID == handoffID || handoffHash == \"\""},
	{"It should be answered duplicate", "worldengine/internal/core/machine/step.go",
		"return receipt.ReasonCode == apply.ReasonPluginUnavailable",
		"return false"},
	{"2: it MUST return at least the existing", "worldengine/internal/core/runlog/state.go",
		"s.keys[w.IdempotencyKey]; ok {",
		"s.keys[w.IdempotencyKey]; ok && false {"},
	{"On a duplicate key the append authority", "worldengine/internal/core/runlog/state.go",
		"PersistedAt: r.PersistedAt, Idemp",
		"Idemp"},
	{"It MUST mark the operation as idempotent", "worldengine/internal/core/runlog/state.go",
		"Idempotent: true,",
		"Idempotent: false,"},
	{"A collision MUST be rejected or answered", "worldengine/internal/core/runlog/state.go",
		"s.keys[w.IdempotencyKey]; ok {",
		"s.keys[w.IdempotencyKey]; ok && false {"},
	{"An operator MAY have it validate", "worldengine/internal/engine/open.go",
		"Transitions: e.config.ValidateTransitions",
		"Transitions: false"},
	{"An alert MUST have the ids of the run", "runevents/project.go",
		"a.PriorState, a.AttemptedState = prior, attempted",
		"_, _ = prior, attempted"},
	{"engineAttemptId MUST be present", "schemas/run-event-write.v2.schema.json",
		"\"engineAttemptId\", ",
		""},
	{"2: they MUST advance the watermark", "runevents/project.go",
		"r.LastEventSeq = stored.RunSeq",
		"r.LastEventSeq++"},
	{"The append authority SHOULD give causal", "worldengine/internal/core/runlog/state.go",
		"plan.Run.FirstSeq + int64(",
		"plan.Run.FirstSeq - int64("},
	{"logicalAttemptId of a step counts up ONLY", "worldengine/internal/core/apply/pending.go",
		"n.Attempt++",
		"n.Attempt += 2"},
	{"4: a projector runs in every server", "worldengine/internal/engine/open.go",
		"if e.config.Projector {",
		"if false {"},
	{"Overload is answered: REJECT", "worldengine/internal/serve/service/admit.go",
		"msg.Header[wire.RetryAfterHeader] = []string{strconv.Itoa(i * pauseStep)}",
		"delete(msg.Header, wire.RetryAfterHeader)\n_ = strconv.Itoa(i)"},
	{"They MUST NOT assume that delivery", "runevents/project.go",
		"if stored.RunSeq <= r.LastEventSeq {",
		"if false {"},
	{"3 and 5: the town is PAUSED at once", "worldengine/internal/engine/signals.go",
		"applying > 0 && by.Draining",
		"applying < 0 && by.Draining"},
	{"7: what to do with a task that ends late", "worldengine/internal/core/machine/applying.go",
		"func (e *Outcome) effect(s *step) (Output, error) {",
		"func (e *Outcome) effect(s *step) (Output, error) {\n\tif true {\n\t\treturn Output{}, nil\n\t}"},
	{"1: an unknown eventType MUST NOT fail", "runevents/project.go",
		"if !stored.EventType.known() {",
		"if false {"},
	{"2: unknown members MUST be ignored", "runevents/event.go",
		"json:\"runSeq\"`",
		"json:\"run_seq\"`"},
	{"3: new values of enumerations", "runevents/snapshot.go",
		"Status RunStatus `json:\"status\"`",
		"Status RunStatus `json:\"-\"`"},
	{"2: engineRunRef MUST be the payload's", "runevents/project.go",
		"r.EngineRunRef = decoded[string](d.EngineRunRef)",
		"r.EngineRunRef = \"\""},
	{"3: startedAt MUST be the payload's", "runevents/project.go",
		"r.StartedAt = schemas.UTC(at)",
		"_ = schemas.UTC(at)"},
	{"4: lastEventSeq MUST be the event's", "runevents/project.go",
		"r.LastEventSeq = stored.RunSeq",
		"r.LastEventSeq++"},
	{"executionRequirements has the preconditions", "handoff/handoff.go",
		"text(requirements, \"expectedSnapshotHash\")",
		"\"x\" + text(requirements, \"expectedSnapshotHash\")"},
}

// transitions are mutants of the transitions of a town that are not stored, with the tests that find them.
var transitions = []struct{ name, file, from, to, proof string }{
	{"adopt a command", "worldengine/internal/engine/game/dispatcher.go",
		"x.adopts, x.paused = true, nil; !d.start(x)",
		"x.adopts, x.paused = false, nil; !d.start(x)",
		"`worldengine/internal/engine/game.TestDispatcher_TakesConsoleOver`"},
	{"adopt after a lost race", "worldengine/internal/engine/game/dispatcher.go",
		"if err := x.endElsewhere(ctx); err != nil {",
		"if err := error(nil); err != nil {",
		"`worldengine/internal/engine/game.TestDispatcher_EndedElsewhere`"},
	{"adopt a command that was left", "worldengine/internal/engine/game/dispatcher.go",
		"x.adopts, x.paused, x.due = true, nil, x.reread",
		"x.adopts, x.paused = true, nil",
		"`worldengine/internal/engine/game.TestDispatcher_LeftCommand`"},
	{"note a cancellation", "worldengine/internal/engine/game/cancel.go",
		"x.noted = append(x.noted, c)",
		"c.done(nil)",
		"`worldengine/internal/engine/game.TestDispatcher_CancelCallerLeft`"},
	{"forget a cancellation", "worldengine/internal/engine/game/cancel.go",
		"case c.caller.Err() != nil:",
		"case false:",
		"`worldengine/internal/engine/game.TestDispatcher_CancelCallerLeft`"},
	{"resend", "worldengine/internal/engine/game/attempt.go",
		"return p.waitFor(now, p.resend)",
		"return p.waitFor(now, time.Hour)",
		"`worldengine/internal/engine.TestStories`"},
	{"pause while asked", "worldengine/internal/engine/game/execution.go",
		"by != nil && !inHand:",
		"by != nil:",
		"`worldengine/internal/engine/game.TestDispatcher_AskedInPause`"},
	{"stop the deadline in a pause", "worldengine/internal/engine/game/execution.go",
		"x.plugin.ends = x.plugin.ends.Add(now.Sub(x.postponed))",
		"_ = x.plugin",
		"`worldengine/internal/engine/game.TestDispatcher_AskedInPause`"},
	{"stop", "worldengine/internal/engine/game/execution.go",
		"if x.dispatcher.ctx.Err() != nil && !x.console.asked {",
		"if false {",
		"`worldengine/internal/engine/game.TestDispatcher_Rests`, `worldengine/internal/engine/game.TestDispatcher_Stop`"},
	{"deliver with the decision", "worldengine/internal/engine/signals.go",
		"case submit && out.Decided",
		"case false && out.Decided",
		"`worldengine/internal/engine.TestDecide_PersonLeaves`"},
	{"close a run before it is judged", "worldengine/internal/core/machine/step.go",
		"out.First = first",
		"_ = first",
		"`worldengine/internal/core/machine.TestStep_Oracle`, `worldengine/internal/engine.TestStories`"},
	{"reopen a run", "worldengine/internal/core/machine/waiting.go",
		"if s.tail.Closed == e.Closing {",
		"if s.tail.Closed || !e.Closing {",
		"`worldengine/internal/core/machine.TestStep_Oracle`, `worldengine/internal/core/machine.TestScenarios`"},
}

// TestMutants breaks the code of each row of conformance.csv once, and wants one of its named tests
// to fail. It does so with the transitions of a town, too. A function returns zero values at once, a text or a number is another one, and a schema
// takes everything. Each row is a subtest, by its line: -run 'TestMutants/^7$'.
func TestMutants(t *testing.T) {
	rows, err := csv.NewReader(strings.NewReader(read(t, "conformance.csv"))).ReadAll()
	require.NoError(t, err)
	root, err := filepath.Abs("..")
	require.NoError(t, err)
	seen := map[string]bool{}
	for i, row := range rows[1:] {
		obligation, code, proof := row[2], row[3], row[4]
		if unproven.MatchString(proof) || seen[code+proof] || strings.HasPrefix(code, "`testdata/") {
			continue // nothing that can be broken
		}
		seen[code+proof] = true
		t.Run(fmt.Sprint(i+2), func(t *testing.T) {
			overlay, what := map[string]string{}, ""
			for _, m := range chosen {
				if strings.HasPrefix(obligation, m.row) {
					source := read(t, filepath.Join("..", m.file))
					require.Equal(t, 1, strings.Count(source, m.from), "%s: %s", m.file, m.from)
					overlay[filepath.Join(root, m.file)] = strings.Replace(source, m.from, m.to, 1)
					what = m.file
				}
			}
			for _, name := range quoted.FindAllStringSubmatch(code, -1) {
				if len(overlay) == 0 {
					overlay, what = mutate(t, root, name[1]), name[1]
				}
			}
			require.NotEmpty(t, overlay, "no mutant of %s: choose one", code)
			require.True(t, killed(t, root, overlay, proof, what),
				"%s: the named tests pass although %s is broken: %s", obligation, what, proof)
		})
	}
	for _, m := range transitions {
		t.Run(m.name, func(t *testing.T) {
			source := read(t, filepath.Join("..", m.file))
			require.Equal(t, 1, strings.Count(source, m.from), "%s: %s", m.file, m.from)
			require.True(t, killed(t, root, map[string]string{
				filepath.Join(root, m.file): strings.Replace(source, m.from, m.to, 1),
			}, m.proof, m.file), "%s pass although %s is broken: %s", m.proof, m.file, m.from)
		})
	}
}

// killed reports whether one of the tests in a proof fails with files in place of others.
func killed(t *testing.T, root string, files map[string]string, proof, what string) bool {
	dir, replace := t.TempDir(), map[string]string{}
	for path, source := range files {
		mutant := filepath.Join(dir, fmt.Sprint(len(replace))+filepath.Base(path))
		require.NoError(t, os.WriteFile(mutant, []byte(source), 0o600))
		replace[path] = mutant
	}
	data, err := json.Marshal(map[string]any{"Replace": replace})
	require.NoError(t, err)
	overlay := filepath.Join(dir, "overlay.json")
	require.NoError(t, os.WriteFile(overlay, data, 0o600))
	tests := map[string][]string{}
	for _, name := range quoted.FindAllStringSubmatch(proof, -1) {
		pkg, test, err := split(name[1])
		require.NoError(t, err)
		tests[pkg] = append(tests[pkg], test)
	}
	of, _, _ := split(what)
	slow := []string{"worldengine/handoff", "worldengine/internal/serve/server", "worldengine/internal/testkit/systemtest"}
	rank := func(pkg string) int { // the quick ones first
		isSlow := func(prefix string) bool { return strings.HasPrefix(pkg, prefix) }
		return slices.Index([]bool{pkg == of, !slices.ContainsFunc(slow, isSlow), true}, true)
	}
	order := slices.SortedFunc(maps.Keys(tests), func(a, b string) int {
		return cmp.Or(cmp.Compare(rank(a), rank(b)), cmp.Compare(a, b))
	})
	for _, pkg := range order {
		c := exec.CommandContext(t.Context(), "go", "test", "-vet=off", "-count=1", "-timeout=120s",
			"-tags=browser", // as those of the console have it
			"-run", "^("+strings.Join(tests[pkg], "|")+")$", "./"+pkg)
		c.Dir, c.Env = root, append(os.Environ(), "GOFLAGS=-pgo=off -overlay="+overlay)
		out, err := c.CombinedOutput()
		require.NotContains(t, string(out), "[build failed]", "%s: %s", what, out)
		if err != nil {
			t.Logf("%s: %s fails", what, pkg)
			return true
		}
	}
	return false
}

// mutate returns files that break a declaration or a schema, none if it has nothing to break.
func mutate(t *testing.T, root, name string) map[string]string {
	if strings.HasSuffix(name, ".schema.json") {
		var schema map[string]any
		require.NoError(t, json.Unmarshal([]byte(read(t, filepath.Join("..", name))), &schema))
		maps.DeleteFunc(schema, func(member string, _ any) bool {
			return !slices.Contains([]string{"$schema", "$id", "title", "description"}, member)
		})
		data, err := json.Marshal(schema)
		require.NoError(t, err)
		return map[string]string{filepath.Join(root, name): string(data)}
	}
	pkg, ident, err := split(name)
	if err != nil {
		return nil
	}
	files, err := filepath.Glob(filepath.Join(root, pkg, "*.go"))
	require.NoError(t, err)
	mutants := map[string]string{}
	for _, path := range files {
		source, err := os.ReadFile(path)
		require.NoError(t, err)
		if strings.HasSuffix(path, "_test.go") {
			continue
		}
		set := token.NewFileSet()
		file, err := parser.ParseFile(set, path, source, parser.SkipObjectResolution)
		require.NoError(t, err)
		text, broken := string(source), false
		at := func(p token.Pos) int { return set.Position(p).Offset }
		for _, decl := range slices.Backward(file.Decls) { // so that offsets stay
			from, to, with := 0, 0, ""
			switch decl := decl.(type) {
			case *ast.FuncDecl:
				full := nameOf(decl)
				if decl.Body == nil || len(decl.Body.List) == 0 || full != ident && !strings.HasPrefix(full, ident+".") {
					continue
				}
				from = at(decl.Body.Lbrace) + 1
				to, with = from, "\nif true { return "+zeros(text, decl.Type.Results, at)+" }\n"
			case *ast.GenDecl:
				from, to, with = valueOf(decl, ident, text, at)
			}
			if with != "" {
				text, broken = text[:from]+with+text[to:], true
			}
		}
		if broken {
			mutants[path] = text
		}
	}
	return mutants
}

// zeros returns the zero values of results.
func zeros(source string, results *ast.FieldList, at func(token.Pos) int) string {
	if results == nil || len(results.List[0].Names) > 0 && results.List[0].Names[0].Name != "_" {
		return "" // a bare return
	}
	var values []string
	for _, field := range results.List {
		for range max(len(field.Names), 1) {
			values = append(values, "*new("+source[at(field.Type.Pos()):at(field.Type.End())]+")")
		}
	}
	return strings.Join(values, ", ")
}

// valueOf returns the place of the value of a constant or variable, and another value.
func valueOf(
	decl *ast.GenDecl, ident, source string, at func(token.Pos) int,
) (from, to int, with string) {
	for _, spec := range decl.Specs {
		value, ok := spec.(*ast.ValueSpec)
		if !ok || len(value.Values) != 1 || value.Names[0].Name != ident {
			continue
		}
		from, to = at(value.Values[0].Pos()), at(value.Values[0].End())
		literal, isLiteral := value.Values[0].(*ast.BasicLit)
		switch {
		case isLiteral && literal.Kind == token.STRING:
			return from, to, `"mutant"`
		case decl.Tok == token.CONST:
			return from, to, "7 * (" + source[from:to] + ")"
		}
	}
	return 0, 0, ""
}
