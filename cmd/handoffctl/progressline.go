package main

import (
	"fmt"
	"io"
	"time"
)

// progressLine is one line of a terminal that says how far long work is; elsewhere it says nothing.
// One goroutine at a time may use it.
type progressLine struct {
	w     io.Writer // nil where there is no terminal
	width int       // of what stands there
	shown time.Time
}

// progressLine returns a line on standard error.
func (a *app) progressLine() *progressLine {
	if !isTerminal(a.err) {
		return &progressLine{}
	}
	return &progressLine{w: a.err}
}

// show replaces the line, ten times a second at most.
func (p *progressLine) show(format string, args ...any) {
	if p.w == nil || time.Since(p.shown) < 100*time.Millisecond {
		return
	}
	text := fmt.Sprintf(format, args...)
	fmt.Fprintf(p.w, "\r%-*s", p.width, text)
	p.width, p.shown = len(text), time.Now()
}

// showLog says how far a check of the log is. What comes after the log may take long, so its end is
// always shown.
func (p *progressLine) showLog(seq, end uint64) {
	if seq >= end {
		p.shown = time.Time{}
	}
	p.show("log sequence %d of %d, %d %%", seq, end, 100*seq/max(end, 1))
}

// clear takes the line away.
func (p *progressLine) clear() {
	if p.w != nil && p.width > 0 {
		fmt.Fprintf(p.w, "\r%*s\r", p.width, "")
		p.width = 0
	}
}
