package main

import (
	"context"
	"fmt"
	"io"
	"strings"
	"sync"
	"time"

	"github.com/go-json-experiment/json/jsontext"

	"worldengine/handoff"
	"worldengine/worldengine/apply"
	"worldengine/worldengine/plugin"
)

// manualPlugin answers the commands of the engine as a person, or --answer, says, one at a time.
type manualPlugin struct {
	app     *app
	reason  string        // the reason code if a key gives none
	always  *reaction     // nil asks for each command
	count   int           // of commands after which it ends; 0 for never
	keys    chan string   // the lines of the person
	started chan struct{} // closed when commands may be answered
	ended   chan error    // has room for one

	mu    sync.Mutex
	times map[string]int // requests of each command since its last outcome, by applyId
	shown string         // the applyId of the command that the person was asked about
	done  int            // commands that got their reaction, without repeats
}

// apply returns the reaction to a command.
func (p *manualPlugin) apply(ctx context.Context, c *apply.Command) (apply.Answer, error) {
	select {
	case <-p.started:
	case <-ctx.Done():
		return apply.Answer{}, apply.ErrUnavailable
	}
	v, err := p.always, error(nil)
	if v == nil {
		v, err = p.ask(ctx, c)
	}
	if err != nil {
		return apply.Answer{}, err
	}
	if answer := v.answer(c); answer != nil {
		return *answer, nil
	}
	return apply.Answer{}, plugin.ErrNoAnswer
}

// ask shows a command, and returns the reaction that the person types.
func (p *manualPlugin) ask(ctx context.Context, c *apply.Command) (*reaction, error) {
	p.mu.Lock()
	err := p.describe(c, p.forPeople())
	p.shown = c.ApplyID
	p.mu.Unlock()
	for err == nil {
		fmt.Fprint(p.app.err, "  a, r [CODE], R [CODE], b, p, s or ? > ")
		select {
		case line := <-p.keys:
			v, wrong := reactionTo(line, p.reason)
			if wrong == nil {
				return &v, nil
			}
			fmt.Fprintln(p.app.err, wrong)
		case <-ctx.Done():
			return nil, plugin.ErrNoAnswer
		}
	}
	p.end(err)
	return nil, plugin.ErrNoAnswer
}

// forPeople is where the person at the keyboard reads.
func (p *manualPlugin) forPeople() io.Writer {
	if p.app.json() {
		return p.app.err
	}
	return p.app.out
}

// end ends the program, with the first error if there is one.
func (p *manualPlugin) end(err error) {
	select {
	case p.ended <- err:
	default:
	}
}

// answered reports an answer.
func (p *manualPlugin) answered(c *apply.Command, answer *apply.Answer, again bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	err := p.report(c, answer, again)
	if !again {
		delete(p.times, c.ApplyID)
		p.shown = ""
		p.done++
	}
	if err != nil || p.count > 0 && p.done == p.count {
		p.end(err)
	}
}

// triedRequest is the line of a request with -o json.
type triedRequest struct {
	ApplyID          string               `json:"applyId"`
	RunID            string               `json:"runId"`
	LogicalAttemptID int64                `json:"logicalAttemptId"`
	TownID           string               `json:"townId"`
	ActorID          string               `json:"actorId"`
	Type             handoff.ProposalType `json:"type"`
	Argument         string               `json:"argument"`
	Changes          []handoff.Difference `json:"changes"`
	// Repeat reports that the request was answered as before, or that the command still waits.
	Repeat bool `json:"repeat"`
	// Answer is null for silence.
	Answer *apply.Answer `json:"answer"`
}

// report shows an answer.
func (p *manualPlugin) report(c *apply.Command, answer *apply.Answer, again bool) error {
	if p.app.json() {
		return p.app.printJSON(triedRequest{
			c.ApplyID, c.RunID, c.LogicalAttemptID, c.TownID, c.ActorID, c.Type, c.Argument(),
			changesBetween(c.Snapshot, c.ExpectedSnapshot), again, answer,
		})
	}
	text := "silence"
	if answer != nil {
		text = strings.TrimSpace(string(answer.Status) + " " + answer.ReasonCode)
	}
	switch {
	case again && (answer.Status == apply.Busy || answer.Status == apply.InProgress):
		p.times[c.ApplyID]++ // the answer to the command will say so
		return nil
	case again:
		return p.app.printf("%s  %s  repeat of %.20s…, attempt %d -> %s\n",
			time.Now().Format(clockFormat), show(c.TownID), c.ApplyID, c.LogicalAttemptID, text)
	}
	if p.shown != c.ApplyID {
		if err := p.describe(c, p.app.out); err != nil {
			return err
		}
	}
	if more := p.times[c.ApplyID]; more > 0 {
		text += fmt.Sprintf(" (asked %d times)", 1+more)
	}
	return p.app.printf("  -> %s\n", text)
}

const clockFormat = "15:04:05.000"

// describe shows a command.
func (p *manualPlugin) describe(c *apply.Command, w io.Writer) error {
	_, err := fmt.Fprintf(w, "%s  %s  %s  %s %s  (%.20s…, attempt %d, %s left)\n",
		time.Now().Format(clockFormat), show(c.TownID), show(c.ActorID), c.Type,
		show(c.Argument()), c.ApplyID, c.LogicalAttemptID,
		time.Duration(min(c.TimeoutMs, 1e9))*time.Millisecond)
	for _, found := range changesBetween(c.Snapshot, c.ExpectedSnapshot) {
		if err == nil {
			_, err = fmt.Fprintf(w, "  %s: %s -> %s\n", show(found.Path),
				valueOrNone(found.Before), valueOrNone(found.After))
		}
	}
	return err
}

func valueOrNone(v jsontext.Value) string {
	if v == nil {
		return "none"
	}
	return show(string(v))
}
