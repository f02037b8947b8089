package handoffctl

import (
	"bytes"
	"cmp"
	"fmt"
	"io"
	"os"
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

// print prints an answer as JSON, or for people the text of data by a template of answers. A jsontext.Value is
// printed as it came.
func (a *app) print(answer any, template string, data any) error {
	raw, is := answer.(jsontext.Value)
	switch {
	case is && a.json():
		return a.printRaw(raw)
	case a.json():
		return a.printJSON(answer)
	}
	text, err := a.text(template, data)
	if err == nil {
		_, err = a.out.Write(text)
	}
	return err
}

// cell is a part of a text that is not shown, but written as it is.
type cell string

// tone rates a state, by a colour on a terminal.
type tone string

const (
	plain tone = "\x1b[39m" // the terminal's own colour
	good  tone = "\x1b[32m" // green
	warn  tone = "\x1b[33m" // yellow
	bad   tone = "\x1b[31m" // red
)

// colour returns what begins the colour of a tone, plain for "", if out shows colours. Every tone has the same
// number of characters, so that columns stay straight: colour all cells of a column and its heading, or none.
func (a *app) colour(t tone) cell {
	if !a.colours {
		return ""
	}
	return cell(cmp.Or(t, plain))
}

// coloured returns a text in the colour of a tone.
func (a *app) coloured(text string, t tone) cell { return a.colour(t) + cell(text) + a.colour(plain) }

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
