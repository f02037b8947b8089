package main

import (
	"io"

	"worldengine/handoff"
	"worldengine/runevents"
)

// tone is how good something is. On a terminal it has a colour.
type tone string

const (
	plain tone = "\x1b[39m" // the terminal's own colour
	good  tone = "\x1b[32m" // green
	warn  tone = "\x1b[33m" // yellow
	bad   tone = "\x1b[31m" // red
)

// coloured returns the text in the colour of a tone, where out shows colours. There it grows by the
// same number of characters for every tone: in a column of a table either every cell is coloured,
// with its heading, or none.
func (a *app) coloured(text string, t tone) string {
	if !a.colours {
		return text
	}
	return string(t) + text + string(plain)
}

// resultTone is the tone of a result: only what was executed is green.
func resultTone(status handoff.Status) tone {
	switch status {
	case handoff.Executed:
		return good
	case handoff.Stale, handoff.Duplicate:
		return warn
	case handoff.Rejected, handoff.Failed:
		return bad
	}
	return plain
}

// runTone is the tone of a run: of one that has completed that of its result, where it has one.
func runTone(status runevents.RunStatus, result handoff.Status) tone {
	switch status {
	case runevents.RunSucceeded:
		if result == "" {
			return good
		}
		return resultTone(result)
	case runevents.RunHasFailed, runevents.RunAborted:
		return bad
	case runevents.RunPending, runevents.RunIsPaused:
		return warn
	}
	return plain
}

// severityTone is the tone of an alert.
func severityTone(s runevents.Severity) tone {
	switch s {
	case runevents.P1:
		return bad
	case runevents.P2:
		return warn
	}
	return plain
}

// colourful reports whether out is a terminal that is to have colours (https://no-color.org).
func colourful(out io.Writer, env func(string) (string, bool)) bool {
	if without, _ := env("NO_COLOR"); without != "" {
		return false
	}
	term, _ := env("TERM")
	return term != "dumb" && isTerminal(out)
}
