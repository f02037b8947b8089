package main

import (
	"fmt"
	"io"
	"sync"
	"time"

	"worldengine/handoff"
)

// summary is what a replay found.
type summary struct {
	// Outcomes counts the fixtures by the status of their result, or refused.
	Outcomes map[string]int `json:"outcomes"`
	Replayed int            `json:"replayed"`
	// Passed, Failed and Unchecked are how many answered as expected, how many did not, and how
	// many expect nothing.
	Passed    int `json:"passed"`
	Failed    int `json:"failed"`
	Unchecked int `json:"unchecked"`
	// Updated is how many of them expect something else from now on, and Updates what.
	Updated int      `json:"updated,omitzero"`
	Updates []update `json:"updates,omitempty"`
	// NotReplayed is how many were left when the server could not be reached any more.
	NotReplayed int        `json:"notReplayed"`
	Failures    []mismatch `json:"failures"`
	Seconds     float64    `json:"seconds"`
}

func summarize(done []*replayed, took time.Duration) summary {
	s := summary{Outcomes: map[string]int{}, Failures: []mismatch{}, Seconds: took.Seconds()}
	for _, status := range handoff.Statuses() {
		s.Outcomes[string(status)] = 0
	}
	s.Outcomes[refusedOutcome] = 0
	for _, r := range done {
		if r == nil {
			s.NotReplayed++
			continue
		}
		s.Replayed++
		s.Outcomes[r.outcome]++
		switch {
		case r.updated:
			s.Updated++
		case r.failure != nil:
			s.Failed++
			s.Failures = append(s.Failures, *r.failure)
		case r.unchecked:
			s.Unchecked++
		default:
			s.Passed++
		}
	}
	return s
}

// printReplay prints what a replay found. The error, if any, makes the exit status 1; where the
// replay was stopped by an error, that one decides.
func (a *app) printReplay(
	done []*replayed, took time.Duration, updates []update, stopped error,
) error {
	s := summarize(done, took)
	s.Updates = updates
	if a.json() && stopped == nil {
		if err := a.printJSON(s); err != nil {
			return err
		}
	} else if !a.json() {
		if err := a.printSummary(&s); err != nil {
			return err
		}
	}
	if len(s.Failures) > 0 && stopped == nil {
		return &failedError{fmt.Sprintf("%d of %d fixtures failed", len(s.Failures), s.Replayed)}
	}
	return nil
}

func (a *app) printSummary(s *summary) error {
	err := a.printTable(func(w io.Writer) {
		for _, status := range handoff.Statuses() {
			fmt.Fprintf(w, "%s\t%d\n", status, s.Outcomes[string(status)])
		}
		fmt.Fprintf(w, "%s\t%d\n", refusedOutcome, s.Outcomes[refusedOutcome])
		fmt.Fprintf(w, "replayed\t%d in %s, %.0f/s\n", s.Replayed,
			time.Duration(s.Seconds*float64(time.Second)).Round(time.Millisecond),
			float64(s.Replayed)/max(s.Seconds, 1e-9))
		if s.NotReplayed > 0 {
			fmt.Fprintf(w, "not replayed\t%d\n", s.NotReplayed)
		}
	})
	if err == nil {
		err = a.printf("%d passed, %d failed, %d unchecked (they expect nothing)\n", s.Passed,
			s.Failed, s.Unchecked)
	}
	if err == nil && s.Updated > 0 {
		err = a.printf("%d updated: they expect what was answered\n", s.Updated)
	}
	for i := range s.Failures {
		f := &s.Failures[i]
		if err == nil {
			err = a.printf("\nfailed: %s\n  expected %s\n  got      %s\n", f.Fixture,
				f.Expected, show(f.Got))
		}
		for _, d := range f.Differs {
			if err == nil {
				err = a.printf("    %s\n", show(d))
			}
		}
	}
	return err
}

// progress tells how far a replay is: on one line of a terminal, else every so many fixtures. It is
// safe for concurrent use.
type progress struct {
	w        io.Writer
	terminal bool
	total    int

	mu    sync.Mutex
	done  int
	shown time.Time
}

// progressEvery is how many fixtures pass between two lines where there is no terminal.
const progressEvery = 1000

func newProgress(w io.Writer, total int) *progress {
	return &progress{w: w, terminal: isTerminal(w), total: total}
}

func (p *progress) step() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.done++
	switch {
	case p.terminal && time.Since(p.shown) > 100*time.Millisecond:
		p.shown = time.Now()
		fmt.Fprintf(p.w, "\r%d of %d replayed", p.done, p.total)
	case !p.terminal && p.done%progressEvery == 0:
		fmt.Fprintf(p.w, "%d of %d replayed\n", p.done, p.total)
	}
}

// end clears the line of a terminal.
func (p *progress) end() {
	if p.terminal {
		fmt.Fprintf(p.w, "\r%*s\r", 40, "")
	}
}
