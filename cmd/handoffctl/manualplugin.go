package main

import (
	"fmt"
	"io"
	"slices"
	"strings"
	"time"

	"github.com/go-json-experiment/json/jsontext"
	"github.com/nats-io/nats.go"

	"worldengine/handoff"
	"worldengine/schemas"
	"worldengine/worldengine/apply"
	"worldengine/worldengine/plugin"
)

// manualPlugin answers the commands of the engine as a person, or --answer, says, one at a time. It
// is used by one goroutine.
type manualPlugin struct {
	app    *app
	reason string    // the reason code where a key gives none
	always *reaction // nil asks for each command
	memory plugin.Memory
	now    func() time.Time

	waiting  []*manualJob // the first is being asked about
	answered int          // commands that got their reaction, without repeats
}

// manualJob is a command that waits for its reaction.
type manualJob struct {
	command *apply.Command // as it was asked for last
	// one a reply subject: an engine has one for all its requests of a command
	replies []*nats.Msg
	times   int
	until   time.Time
}

// again takes a repeated request.
func (j *manualJob) again(c *apply.Command, msg *nats.Msg, until time.Time) {
	if !slices.ContainsFunc(j.replies, func(m *nats.Msg) bool { return m.Reply == msg.Reply }) {
		j.replies = append(j.replies, msg)
	}
	j.command, j.until = c, until
	j.times++
}

// take answers a request, or lets it wait for the person.
func (p *manualPlugin) take(msg *nats.Msg) error {
	c, err := apply.ParseCommand(msg.Data, schemas.Limits{})
	if err != nil || msg.Reply == "" {
		p.complain("a request is not answered", msg, err)
		return nil
	}
	if known, ok := p.memory.Get(c.ApplyID); ok {
		if answer, ok := known.AnswerTo(c.LogicalAttemptID); ok {
			return p.repeat(c, msg, answer)
		}
	}
	until := p.now().Add(time.Duration(min(c.TimeoutMs, 1e9)) * time.Millisecond)
	same := func(j *manualJob) bool { return j.command.ApplyID == c.ApplyID }
	if at := slices.IndexFunc(p.waiting, same); at >= 0 {
		j := p.waiting[at]
		j.again(c, msg, until)
		status := apply.Busy
		if at == 0 {
			status = apply.InProgress
		}
		answer := apply.Later(c, status, manualRetry)
		if err := respond(msg, &answer); err != nil || !p.app.json() {
			return err // a person reads with the answer how often it was asked
		}
		return p.report(c, &answer, 1, true)
	}
	j := &manualJob{command: c, replies: []*nats.Msg{msg}, times: 1, until: until}
	if p.always != nil {
		if p.late(j) {
			return p.answer(j, tooLate)
		}
		return p.answer(j, *p.always)
	}
	if p.waiting = append(p.waiting, j); len(p.waiting) == 1 {
		return p.ask()
	}
	return nil
}

func (p *manualPlugin) complain(what string, msg *nats.Msg, err error) {
	fmt.Fprintf(p.app.err, "handoffctl: %s, on %s\n", what, show(msg.Subject))
	if err == nil {
		fmt.Fprintln(p.app.err, "  it has no reply subject: the engine gives one")
		return
	}
	for _, v := range violations(err) {
		fmt.Fprintf(p.app.err, "  %s: %s\n", orWhole(v.Path), v.Message)
	}
}

// key takes the person's line for the first command that waits.
func (p *manualPlugin) key(line string) error {
	v, err := reactionTo(line, p.reason)
	if err != nil {
		fmt.Fprintln(p.app.err, err)
		p.prompt()
		return nil
	}
	j := p.waiting[0]
	p.waiting = p.waiting[1:]
	if err := p.answer(j, v); err != nil {
		return err
	}
	return p.ask()
}

// late reports whether the time of a command has passed: it is refused, not begun.
func (p *manualPlugin) late(j *manualJob) bool { return !p.now().Before(j.until) }

var tooLate = reaction{"refused-retryable", plugin.ReasonDeadlinePassed}

// ask shows the next command that waits.
func (p *manualPlugin) ask() error {
	for len(p.waiting) > 0 && p.late(p.waiting[0]) {
		j := p.waiting[0]
		p.waiting = p.waiting[1:]
		err := p.describe(j.command, p.forPeople())
		if err == nil {
			err = p.answer(j, tooLate)
		}
		if err != nil {
			return err
		}
	}
	if len(p.waiting) == 0 {
		return nil
	}
	if err := p.describe(p.waiting[0].command, p.forPeople()); err != nil {
		return err
	}
	p.prompt()
	return nil
}

func (p *manualPlugin) prompt() {
	fmt.Fprint(p.app.err, "  a, r [CODE], R [CODE], b, p, s or ? > ")
}

// forPeople is where the person at the keyboard reads.
func (p *manualPlugin) forPeople() io.Writer {
	if p.app.json() {
		return p.app.err
	}
	return p.app.out
}

// answer answers every request for a command that waits with the reaction, remembers the answer,
// and reports it.
func (p *manualPlugin) answer(j *manualJob, v reaction) error {
	p.answered++
	answer := v.answer(j.command)
	if answer != nil {
		for _, msg := range j.replies {
			if err := respond(msg, answer); err != nil {
				return err
			}
		}
		if err := p.memory.Put(plugin.Record{
			ApplyID: j.command.ApplyID, TownID: j.command.TownID,
			Attempt: j.command.LogicalAttemptID, At: p.now(), Answer: answer,
		}); err != nil {
			return err
		}
	}
	if !p.app.json() && p.always != nil {
		if err := p.describe(j.command, p.app.out); err != nil {
			return err
		}
	}
	return p.report(j.command, answer, j.times, false)
}

// repeat answers a request again as before, without asking the person.
func (p *manualPlugin) repeat(c *apply.Command, msg *nats.Msg, answer apply.Answer) error {
	if err := respond(msg, &answer); err != nil {
		return err
	}
	return p.report(c, &answer, 1, true)
}

func respond(msg *nats.Msg, answer *apply.Answer) error {
	data, err := answer.MarshalWire()
	if err != nil {
		return err
	}
	if err := msg.Respond(data); err != nil {
		return fmt.Errorf("the answer cannot be sent: %w", err)
	}
	return nil
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
	// Repeat reports that the request was answered without asking the person: as before, or that
	// the command still waits.
	Repeat bool `json:"repeat"`
	// Answer is null for silence.
	Answer *apply.Answer `json:"answer"`
}

// report shows the answer to a command that the engine asked for so many times.
func (p *manualPlugin) report(
	c *apply.Command, answer *apply.Answer, times int, repeat bool,
) error {
	if p.app.json() {
		return p.app.printJSON(triedRequest{
			c.ApplyID, c.RunID, c.LogicalAttemptID, c.TownID, c.ActorID, c.Type, c.Argument(),
			changesBetween(c.Snapshot, c.ExpectedSnapshot), repeat, answer,
		})
	}
	text := "silence"
	if answer != nil {
		text = strings.TrimSpace(string(answer.Status) + " " + answer.ReasonCode)
	}
	if repeat {
		return p.app.printf("%s  %s  repeat of %.20s…, attempt %d -> %s\n",
			p.now().Format(clockFormat), show(c.TownID), c.ApplyID, c.LogicalAttemptID, text)
	}
	if times > 1 {
		text += fmt.Sprintf(" (asked %d times)", times)
	}
	return p.app.printf("  -> %s\n", text)
}

const clockFormat = "15:04:05.000"

// describe shows a command.
func (p *manualPlugin) describe(c *apply.Command, w io.Writer) error {
	_, err := fmt.Fprintf(w, "%s  %s  %s  %s %s  (%.20s…, attempt %d, %s left)\n",
		p.now().Format(clockFormat), show(c.TownID), show(c.ActorID), c.Type,
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
