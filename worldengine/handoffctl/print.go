package handoffctl

import (
	"bytes"
	"cmp"
	"fmt"
	"io"
	"os"
	"reflect"
	"strings"
	"text/tabwriter"
	"time"

	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"
	"golang.org/x/term"

	"worldengine/handoff"
	"worldengine/runevents"
	"worldengine/worldengine/internal/kit/termtext"
)

// json reports whether the output is for scripts.
func (a *app) json() bool { return a.flags.Output == "json" || a.raw() }

// raw reports whether the server's answer is printed as it came.
func (a *app) raw() bool { return a.flags.Output == "raw" }

// printf prints text for people.
func (a *app) printf(format string, args ...any) error {
	_, err := fmt.Fprintf(a.out, format, args...)
	return err
}

// printRaw prints JSON as it came, with a newline unless the output is raw.
func (a *app) printRaw(data []byte) error {
	if !a.raw() {
		data = append(bytes.TrimRight(data, "\n"), '\n')
	}
	_, err := a.out.Write(data)
	return err
}

// printJSON prints v as one line of JSON.
func (a *app) printJSON(v any) error {
	data, err := json.Marshal(v, json.Deterministic(true))
	if err != nil {
		return fmt.Errorf("the answer cannot be written: %w", err)
	}
	_, err = a.out.Write(append(data, '\n'))
	return err
}

// print prints an answer as JSON, or text for people. A jsontext.Value is printed as it came.
func (a *app) print(answer any, text func(table)) error {
	if raw, ok := answer.(jsontext.Value); ok && a.json() {
		return a.printRaw(raw)
	}
	if a.json() {
		return a.printJSON(answer)
	}
	var written bytes.Buffer
	t := table{tabwriter.NewWriter(&written, 0, 0, 2, ' ', 0)}
	text(t)
	if err := t.Flush(); err != nil {
		return err
	}
	_, err := a.out.Write(written.Bytes())
	return err
}

// conclude prints an answer, and returns the failure that the answer shows; nil for none.
func (a *app) conclude(answer any, text func(table), failure error) error {
	if err := a.print(answer, text); err != nil {
		return err
	}
	return failure
}

// table is a text for people in which cells that end with a tab stand in columns. A line without
// cells ends the columns, and so does Flush.
type table struct{ *tabwriter.Writer }

// cell is a text that row and linef do not change.
type cell string

// row writes a line of cells. Their texts are shown as show does, "" as a dash.
func (t table) row(cells ...any) {
	texts := make([]string, len(cells))
	for i, c := range cells {
		if text, ok := c.(cell); ok {
			texts[i] = string(text)
		} else {
			texts[i] = orDash(fmt.Sprint(c))
		}
	}
	fmt.Fprintln(t, strings.Join(texts, "\t"))
}

// rowIf is row if a condition holds.
func (t table) rowIf(condition bool, cells ...any) {
	if condition {
		t.row(cells...)
	}
}

// list writes rows below the names of their columns.
func list[Row any](t table, columns string, rows []Row, cells func(*Row) []any) {
	fmt.Fprintln(t, columns)
	for i := range rows {
		t.row(cells(&rows[i])...)
	}
	t.lineIf(len(rows) == 0, "none")
}

// printList prints rows as list does, or as the member of an object in JSON.
func printList[Row any](a *app, member string, rows []Row, columns string, cells func(*Row) []any) error {
	return a.print(map[string]any{member: rows}, func(t table) { list(t, columns, rows, cells) })
}

// linef writes a line of text. Texts among its arguments are shown as show does, cells as they are.
func (t table) linef(format string, args ...any) {
	for i, arg := range args {
		if v := reflect.ValueOf(arg); v.Kind() == reflect.String && v.Type() != reflect.TypeFor[cell]() {
			args[i] = show(v.String())
		}
	}
	fmt.Fprintf(t, format+"\n", args...)
}

// lineIf is linef if a condition holds.
func (t table) lineIf(condition bool, format string, args ...any) {
	if condition {
		t.linef(format, args...)
	}
}

// tone rates a state, by a colour on a terminal.
type tone string

const (
	plain tone = "\x1b[39m" // the terminal's own colour
	good  tone = "\x1b[32m" // green
	warn  tone = "\x1b[33m" // yellow
	bad   tone = "\x1b[31m" // red
)

// coloured returns a text in the colour of a tone, plain for "", if out shows colours. Every tone
// adds the same number of characters, so that columns stay straight: colour all cells of a column
// and its heading, or none.
func (a *app) coloured(text string, t tone) cell {
	if !a.colours {
		return cell(text)
	}
	return cell(string(cmp.Or(t, plain)) + text + string(plain))
}

// toneIf returns a tone if a condition holds, else plain.
func toneIf(condition bool, t tone) tone {
	if condition {
		return t
	}
	return plain
}

// The tones of results, runs and alerts; others are plain. Only the result executed is green.
var (
	resultTones = map[handoff.Status]tone{
		handoff.Executed: good, handoff.Stale: warn, handoff.Duplicate: warn,
		handoff.Rejected: bad, handoff.Failed: bad,
	}
	runTones = map[runevents.RunStatus]tone{
		runevents.RunStatusCompleted: good, runevents.RunStatusFailed: bad, runevents.RunStatusCancelled: bad,
		runevents.RunStatusPending: warn, runevents.RunStatusPaused: warn,
	}
	severityTones = map[runevents.Severity]tone{runevents.P1: bad, runevents.P2: warn}
)

// runTone is the tone of a run. A run that has completed has the tone of its result, if it has one.
func runTone(status runevents.RunStatus, result handoff.Status) tone {
	if status == runevents.RunStatusCompleted && result != "" {
		return resultTones[result]
	}
	return runTones[status]
}

// colourful reports whether out is a terminal that may show colours (https://no-color.org).
func colourful(out io.Writer, env func(name string) string) bool {
	return env("NO_COLOR") == "" && env("TERM") != "dumb" && isTerminal(out)
}

// isTerminal reports whether an input or output is a terminal.
func isTerminal(stream any) bool {
	file, ok := stream.(*os.File)
	return ok && term.IsTerminal(int(file.Fd()))
}

// progressLine shows the progress of long work on a line of a terminal. Without a terminal, it
// shows nothing. One goroutine at a time may use it.
type progressLine struct {
	w     io.Writer // nil if there is no terminal
	width int       // of the text that stands there
	shown time.Time
}

// progressLine returns a line on standard error.
func (a *app) progressLine() *progressLine {
	if !isTerminal(a.err) {
		return &progressLine{}
	}
	return &progressLine{w: a.err}
}

// show replaces the line, ten times a second at most, and always for the last one.
func (p *progressLine) show(last bool, format string, args ...any) {
	if p.w == nil || !last && time.Since(p.shown) < 100*time.Millisecond {
		return
	}
	text := fmt.Sprintf(format, args...)
	fmt.Fprintf(p.w, "\r%-*s", p.width, text)
	p.width, p.shown = len(text), time.Now()
}

// clear removes the line.
func (p *progressLine) clear() {
	if p.w != nil && p.width > 0 {
		fmt.Fprintf(p.w, "\r%*s\r", p.width, "")
		p.width = 0
	}
}

func show(text string) string { return termtext.Text(text) }

// orDash is show, or a dash for "".
func orDash(text string) string {
	if text == "" {
		return "-"
	}
	return show(text)
}

const shownOfID = 8

// brief returns a payload for a table, cut to a line on a terminal.
func (a *app) brief(payload jsontext.Value) string {
	if !a.terminal {
		return string(payload)
	}
	return termtext.Short(string(payload))
}

// briefID returns an id for a table: on a terminal its beginning, which handoffctl accepts as an
// id.
func (a *app) briefID(id string) string {
	if a.terminal && len(id) > shownOfID {
		id = id[:shownOfID]
	}
	return orDash(id)
}
