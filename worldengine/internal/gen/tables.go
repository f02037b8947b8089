package main

import (
	"embed"
	"fmt"
	"reflect"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"text/template"

	"worldengine/handoff"
	"worldengine/runevents"
	"worldengine/schemas"
	"worldengine/worldengine/internal/core/machine"
	"worldengine/worldengine/internal/kit/protocol"
	"worldengine/worldengine/internal/serve/metrics"
	"worldengine/worldengine/wire"
)

// templates write the tables of the clients, of the console, of the example plugin and of the docs. The name of each
// template with a / is a file, or a page and the name of a table in it.
//
//go:embed templates
var templates embed.FS

// tables are the lists that the templates write. The Java client has constants for sets that a newer
// server may extend, and enums for others.
type tables struct {
	Types                              []handoff.ProposalType
	Verbs, Changing                    []wire.Verb // Changing: not to be sent again before a look at the effect
	Errors                             []protocol.ErrorSpec
	WaitReasons                        []string // the codes of a handoff that waits
	Alerts                             []protocol.AlertSpec
	Signals                            []machine.SignalKind
	RunStatuses                        []runevents.RunStatus
	Events, RunEvents, Moving, EndsRun []runevents.EventType // Moving: the status of a run or of a step attempt
	Words                              [][]string            // each with its meaning
	Roles, Clients                     []wire.Role           // Clients: not the engine's
	Metrics                            []*metrics.Spec
}

// tables writes the files and the tables of the templates.
func (g *generator) tables() {
	lists := tables{
		Types: handoff.ProposalTypes(), Verbs: protocol.Verbs(), Errors: protocol.Errors(), Alerts: protocol.Alerts(),
		Signals: machine.Signals(), RunStatuses: runevents.RunStatuses(), Words: g.words(),
		Changing:  selected(protocol.Verbs(), changes),
		Events:    runevents.EventTypes(0),
		RunEvents: runevents.EventTypes(runevents.RunLevel),
		Moving:    append(runevents.EventTypes(runevents.RunLevel), runevents.EventTypes(runevents.StepLevel)...),
		EndsRun:   selected(runevents.EventTypes(0), runevents.EventType.EndsRun),
		Roles:     protocol.Roles(),
		Clients:   selected(protocol.Roles(), func(r wire.Role) bool { return r != wire.Engine }),
		Metrics:   metrics.Specs(),
	}
	for _, spec := range lists.Errors {
		if spec.WaitReason {
			lists.WaitReasons = append(lists.WaitReasons, string(spec.Code))
		}
	}
	shapes := shapes{g, map[schemas.Name]wire.Verb{}}
	all := template.Must(template.New("").Funcs(functions).
		Funcs(template.FuncMap{"request": shapes.request, "reply": shapes.reply}).ParseFS(templates, "templates/*"))
	for _, one := range all.Templates() {
		if !strings.Contains(one.Name(), "/") {
			continue
		}
		var out strings.Builder
		must(0, one.Execute(&out, lists))
		if page, table, is := strings.Cut(one.Name(), ": "); is {
			g.table(page, table, out.String())
		} else {
			g.files[one.Name()] = out.String()
		}
	}
}

// consoleWords are the words of the glossary that the console's help explains, too.
var consoleWords = []string{"in doubt", "revision", "run", "stale"}

// words returns the words of the console's help with their meanings.
func (g *generator) words() (pairs [][]string) {
	for _, word := range consoleWords {
		_, rest, found := strings.Cut(g.read("docs/glossary.md"), "\n- **"+word+"**: ")
		if !found {
			panic("docs/glossary.md does not have the word " + word)
		}
		meaning, _, _ := strings.Cut(rest, "\n")
		pairs = append(pairs, []string{word, meaning})
	}
	return pairs
}

func selected[T any](all []T, wanted func(T) bool) []T {
	return slices.DeleteFunc(slices.Clone(all), func(one T) bool { return !wanted(one) })
}

func changes(v wire.Verb) bool { return protocol.LookupVerb(v).NonIdempotent }

// functions are the functions of the templates.
var functions = template.FuncMap{
	"args":    func(values ...any) []any { return values },
	"changes": changes,
	"role":    protocol.LookupRole,
	"may":     func(r wire.Role, v wire.Verb) bool { return slices.Contains(protocol.LookupVerb(v).Roles, r) },
	"ofRun":   func(t runevents.EventType) bool { return t.Spec().Level == runevents.RunLevel },
	"quotes":  quotes,
	"tuple": func(texts any) string { // of Python
		if list := quotes(texts); list != "" {
			return "(" + list + ",)"
		}
		return "()"
	},
	"bool":     func(b bool) string { return map[bool]string{true: "True", false: "False"}[b] }, // of Python
	"spaced":   func(name string) string { return strings.ReplaceAll(name, "-", " ") },
	"plain":    plain,
	"unlinked": unlinked,
	"javadoc": func(text string) string {
		text = codeSpans.ReplaceAllString(unlinked(text), "{@code $1}")
		return strings.ToUpper(text[:1]) + strings.TrimSuffix(text[1:], ".") + "."
	},
	// constant is the Java constant of a name on the wire: TOWN_GET of town.get, RUN_QUEUED of RunQueued.
	"constant": func(wire any) string {
		return strings.ToUpper(strings.ReplaceAll(joint.ReplaceAllString(fmt.Sprint(wire), "${1}_$2"), ".", "_"))
	},
}

var (
	joint     = regexp.MustCompile(`([a-z])([A-Z])`)
	pageLinks = regexp.MustCompile(`\[([^\]]*)\]\([^)]*\)`)
	codeSpans = regexp.MustCompile("`([^`]*)`")
)

// unlinked returns a text of the docs without its links.
func unlinked(text string) string { return pageLinks.ReplaceAllString(text, "$1") }

// quotes returns texts in quotes.
func quotes(texts any) string {
	list := reflect.ValueOf(texts)
	quoted := make([]string, list.Len())
	for i := range quoted {
		quoted[i] = strconv.Quote(list.Index(i).String())
	}
	return strings.Join(quoted, ", ")
}
