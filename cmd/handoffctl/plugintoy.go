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

// toyPlugin answers commands one at a time. It is used by one goroutine.
type toyPlugin struct {
	app    *app
	reason string    // the reason code where a key gives none
	always *reaction // nil asks for each command
	memory plugin.Memory
	now    func() time.Time

	waiting []*toyJob // the first is being asked about
	told    int       // commands that were answered as told
}

// toyJob is a command that waits for its reaction.
type toyJob struct {
	command *apply.Command // as it was asked for last
	replies []*nats.Msg    // one a reply subject: an engine has one for all its requests of a command
	times   int
	until   time.Time
}

// again takes a repeated request.
func (j *toyJob) again(c *apply.Command, msg *nats.Msg, until time.Time) {
	if !slices.ContainsFunc(j.replies, func(m *nats.Msg) bool { return m.Reply == msg.Reply }) {
		j.replies = append(j.replies, msg)
	}
	j.command, j.until = c, until
	j.times++
}

// take answers a request, or has it wait.
func (t *toyPlugin) take(msg *nats.Msg) error {
	c, err := apply.ParseCommand(msg.Data, schemas.Limits{})
	if err != nil || msg.Reply == "" {
		t.complain("a request is not answered", msg, err)
		return nil
	}
	if known, ok := t.memory.Get(c.ApplyID); ok {
		if answer, ok := known.AnswerTo(c.LogicalAttemptID); ok {
			return t.repeat(c, msg, answer)
		}
	}
	until := t.now().Add(time.Duration(min(c.TimeoutMs, 1e9)) * time.Millisecond)
	same := func(j *toyJob) bool { return j.command.ApplyID == c.ApplyID }
	if at := slices.IndexFunc(t.waiting, same); at >= 0 {
		j := t.waiting[at]
		j.again(c, msg, until)
		status := apply.Busy
		if at == 0 {
			status = apply.InProgress
		}
		answer := apply.Later(c, status, toyRetry)
		if err := respond(msg, &answer); err != nil || !t.app.json() {
			return err // a person is told how often, with the answer
		}
		return t.report(c, &answer, 1, true)
	}
	j := &toyJob{command: c, replies: []*nats.Msg{msg}, times: 1, until: until}
	if t.always != nil {
		return t.settle(j, *t.always)
	}
	if t.waiting = append(t.waiting, j); len(t.waiting) == 1 {
		return t.ask()
	}
	return nil
}

func (t *toyPlugin) complain(what string, msg *nats.Msg, err error) {
	fmt.Fprintf(t.app.err, "handoffctl: %s, on %s\n", what, show(msg.Subject))
	if err == nil {
		fmt.Fprintln(t.app.err, "  it has no reply subject")
		return
	}
	for _, v := range violations(err) {
		fmt.Fprintf(t.app.err, "  %s: %s\n", orWhole(v.Path), v.Message)
	}
}

// key takes a line for the command that is being asked about.
func (t *toyPlugin) key(line string) error {
	v, err := reactionTo(line, t.reason)
	if err != nil {
		fmt.Fprintln(t.app.err, err)
		t.prompt()
		return nil
	}
	j := t.waiting[0]
	t.waiting = t.waiting[1:]
	if err := t.settle(j, v); err != nil {
		return err
	}
	return t.ask()
}

// ask shows the next command that waits. What waited longer than its time is not begun.
func (t *toyPlugin) ask() error {
	for len(t.waiting) > 0 && !t.now().Before(t.waiting[0].until) {
		j := t.waiting[0]
		t.waiting = t.waiting[1:]
		err := t.describe(j.command, t.forPeople())
		if err == nil {
			err = t.settle(j, reaction{"refused-retryable", plugin.ReasonDeadlinePassed})
		}
		if err != nil {
			return err
		}
	}
	if len(t.waiting) == 0 {
		return nil
	}
	if err := t.describe(t.waiting[0].command, t.forPeople()); err != nil {
		return err
	}
	t.prompt()
	return nil
}

func (t *toyPlugin) prompt() { fmt.Fprint(t.app.err, "  a, r [CODE], R [CODE], b, p, s or ? > ") }

// forPeople is where the person at the keyboard reads.
func (t *toyPlugin) forPeople() io.Writer {
	if t.app.json() {
		return t.app.err
	}
	return t.app.out
}

// settle gives a command its reaction: to every request of it that waits, to the memory, and to see.
func (t *toyPlugin) settle(j *toyJob, v reaction) error {
	t.told++
	answer := v.answer(j.command)
	if answer != nil {
		for _, msg := range j.replies {
			if err := respond(msg, answer); err != nil {
				return err
			}
		}
		if err := t.memory.Put(plugin.Record{
			ApplyID: j.command.ApplyID, TownID: j.command.TownID, Attempt: j.command.LogicalAttemptID,
			At: t.now(), Answer: answer,
		}); err != nil {
			return err
		}
	}
	if !t.app.json() && t.always != nil {
		if err := t.describe(j.command, t.app.out); err != nil {
			return err
		}
	}
	return t.report(j.command, answer, j.times, false)
}

// repeat answers a request without asking.
func (t *toyPlugin) repeat(c *apply.Command, msg *nats.Msg, answer apply.Answer) error {
	if err := respond(msg, &answer); err != nil {
		return err
	}
	return t.report(c, &answer, 1, true)
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
	Changes          []change             `json:"changes"`
	// Repeat says that it was answered without asking: as before, or that it still waits.
	Repeat bool `json:"repeat"`
	// Answer is null for silence.
	Answer *apply.Answer `json:"answer"`
}

// report shows what a command was answered that was asked for so many times.
func (t *toyPlugin) report(c *apply.Command, answer *apply.Answer, times int, repeat bool) error {
	if t.app.json() {
		return t.app.printJSON(triedRequest{
			c.ApplyID, c.RunID, c.LogicalAttemptID, c.TownID, c.ActorID, c.Type, c.Argument(),
			changesBetween(c.Snapshot, c.ExpectedSnapshot), repeat, answer,
		})
	}
	text := "silence"
	if answer != nil {
		text = strings.TrimSpace(string(answer.Status) + " " + answer.ReasonCode)
	}
	if repeat {
		return t.app.printf("%s  %s  repeat of %.20s…, attempt %d -> %s\n", t.now().Format(clockFormat),
			show(c.TownID), c.ApplyID, c.LogicalAttemptID, text)
	}
	if times > 1 {
		text += fmt.Sprintf(" (asked %d times)", times)
	}
	return t.app.printf("  -> %s\n", text)
}

const clockFormat = "15:04:05.000"

// describe shows a command.
func (t *toyPlugin) describe(c *apply.Command, w io.Writer) error {
	_, err := fmt.Fprintf(w, "%s  %s  %s  %s %s  (%.20s…, attempt %d, %s left)\n", t.now().Format(clockFormat),
		show(c.TownID), show(c.ActorID), c.Type, show(c.Argument()), c.ApplyID, c.LogicalAttemptID,
		time.Duration(min(c.TimeoutMs, 1e9))*time.Millisecond)
	for _, found := range changesBetween(c.Snapshot, c.ExpectedSnapshot) {
		if err == nil {
			_, err = fmt.Fprintf(w, "  %s: %s -> %s\n", show(found.Path), valueOrNone(found.Before), valueOrNone(found.After))
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
