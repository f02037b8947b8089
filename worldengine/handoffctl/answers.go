package handoffctl

import (
	"bytes"
	"embed"
	"fmt"
	"reflect"
	"strings"
	"sync"
	"text/tabwriter"
	"text/template"
	"text/template/parse"
	"time"

	"github.com/go-json-experiment/json/jsontext"

	"worldengine/handoff"
	"worldengine/runevents"
	"worldengine/worldengine/internal/kit/diskspace"
	"worldengine/worldengine/internal/kit/phrase"
	"worldengine/worldengine/internal/kit/platform"
	"worldengine/worldengine/internal/kit/termtext"
	"worldengine/worldengine/internal/tool/replay"
	"worldengine/worldengine/messages"
)

// answerFiles have the texts of answers for people: templates of lines whose cells end with tabs.
//
//go:embed answers
var answerFiles embed.FS

// answers are the templates of answerFiles. Each value in them is shown as orDash does,
// unless it is a cell.
var answers = sync.OnceValue(func() *template.Template {
	all := template.Must(template.New("").Funcs(new(app).functions()).ParseFS(answerFiles, "answers/*"))
	for _, one := range all.Templates() {
		if one.Tree != nil {
			showValues(one.Root)
		}
	}
	return all
})

// showValues has a function applied to each value that a template writes, as html/template does.
func showValues(in parse.Node) {
	switch n := in.(type) {
	case *parse.ListNode:
		if n == nil {
			return
		}
		for _, node := range n.Nodes {
			showValues(node)
		}
	case *parse.ActionNode:
		if len(n.Pipe.Decl) == 0 {
			n.Pipe.Cmds = append(n.Pipe.Cmds, &parse.CommandNode{NodeType: parse.NodeCommand, Pos: n.Pos,
				Args: []parse.Node{parse.NewIdentifier("shown").SetPos(n.Pos)}})
		}
	case *parse.IfNode:
		showValues(n.List)
		showValues(n.ElseList)
	case *parse.WithNode:
		showValues(n.List)
		showValues(n.ElseList)
	case *parse.RangeNode:
		showValues(n.List)
		showValues(n.ElseList)
	}
}

// Lines of a template with a meaning of their own: an empty line, which is left out otherwise, and the end
// of the columns.
const (
	blankLine   = "\x00"
	sectionLine = "\x01"
)

// functions are the functions of the templates. good, warn and bad begin a colour, plain ends it.
func (a *app) functions() template.FuncMap {
	tones := func(t tone) func() cell { return func() cell { return a.colour(t) } }
	constant := func(c cell) func() cell { return func() cell { return c } }
	return template.FuncMap{
		"shown": shown, "raw": func(text string) cell { return cell(text) },
		"text": func(text string) cell { return cell(show(text)) }, // "" in quotes
		"good": tones(good), "warn": tones(warn), "bad": tones(bad), "plain": tones(plain),
		"run":      func(s runevents.RunStatus, result handoff.Status) cell { return a.colour(runTone(s, result)) },
		"result":   func(s handoff.Status) cell { return a.colour(resultTones[s]) },
		"severity": func(s runevents.Severity) cell { return a.colour(severityTones[s]) },
		"blank":    constant(blankLine), "section": constant(sectionLine),

		"id": func(id string) cell { return cell(a.briefID(id)) }, "json": func(v jsontext.Value) string { return string(v) },
		"lower": strings.ToLower, "lines": func(text string) []string { return strings.Split(strings.TrimSpace(text), "\n") },
		"quote": platform.ShellQuote, "number": number, "less": func(n, by int) int { return n - by },
		"names": phrase.List,
		"counted": func(n any, one string) string {
			return phrase.Counted(reflect.ValueOf(n).Convert(reflect.TypeFor[int64]()).Int(), one)
		},
		"size": func(bytes any) string {
			return diskspace.Size(uint64(max(reflect.ValueOf(bytes).Convert(reflect.TypeFor[int64]()).Int(), 0)))
		},
		"time":         func(at time.Time) string { return at.Format(time.RFC3339) },
		"milliseconds": func(n int64) time.Duration { return time.Duration(n) * time.Millisecond },
		"microseconds": func(n int64) time.Duration { return time.Duration(n) * time.Microsecond },
		"seconds": func(s float64) time.Duration {
			return time.Duration(s * float64(time.Second)).Round(time.Millisecond)
		},
		"perSecond": func(n int, seconds float64) float64 { return float64(n) / max(seconds, 1e-9) },
		"unstopped": func(sentence string) string { return strings.TrimSuffix(sentence, ".") },
		"statuses":  handoff.Statuses, "outcomes": replay.Outcomes, "change": termtext.Change, "brief": a.brief,
		"command":  func(run *messages.RunRow) string { return appended(command(run), run.Metadata.AppendedBy) },
		"outcome":  func(s handoff.Status, r handoff.ReasonCode) string { return runOutcome{s, r}.String() },
		"absences": absences, "sortedVerbs": sortedVerbs, "unnamedAlerts": unnamedAlerts,
	}
}

// shown shows a value: a cell as it is, another as orDash does.
func shown(value any) string {
	if c, is := value.(cell); is {
		return string(c)
	}
	if v := reflect.ValueOf(value); v.Kind() == reflect.Pointer && !v.IsNil() {
		value = v.Elem().Interface()
	}
	return orDash(fmt.Sprint(value))
}

// text returns the text of an answer for people, by the template of a name.
func (a *app) text(name string, answer any) ([]byte, error) {
	all := template.Must(answers().Clone()) // none was executed
	var lines, text bytes.Buffer
	if err := all.Funcs(a.functions()).ExecuteTemplate(&lines, name, answer); err != nil {
		return nil, fmt.Errorf("the answer cannot be shown: %w", err)
	}
	columns := tabwriter.NewWriter(&text, 0, 0, 2, ' ', 0)
	for line := range strings.Lines(lines.String()) {
		switch strings.TrimSuffix(line, "\n") {
		case "":
		case blankLine:
			fmt.Fprintln(columns)
		case sectionLine:
			columns.Flush()
		default:
			fmt.Fprint(columns, line)
		}
	}
	err := columns.Flush()
	return text.Bytes(), err
}
