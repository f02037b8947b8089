package main

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"

	"worldengine/handoff"
	"worldengine/schemas"
	"worldengine/trace"
	"worldengine/worldengine/client"
)

// sendCommand sends one handoff.
type sendCommand struct {
	File   string         `arg:"" help:"File with the handoff, or with one fixture that has it; - for standard input."`
	Expect handoff.Status `help:"Exit 1 unless the result has this status: executed, rejected, stale, duplicate or failed." enum:",executed,rejected,stale,duplicate,failed" default:"" placeholder:"STATUS"`
	Trace  string         `name:"traceparent" help:"W3C traceparent of the handoff, which its plugin, its run events and log lines get: 00-TRACE-PARENT-FLAGS." placeholder:"TRACEPARENT"`
	Wait   time.Duration  `name:"wait-approval" help:"Wait so long for a person's decision, if the proposal takes one." placeholder:"DURATION"`
	DryRun bool           `help:"Ask for the result that the handoff would get now; nothing is stored and the key stays free."`
}

// Help is the command's long help.
func (sendCommand) Help() string {
	return `Sends the bytes of the file as they are, of a fixture those of its handoff, and shows the result
that the server answers. After a 429 or 503 it waits as long as the server says and asks again,
and after a lost reply it sends the same bytes again, within --timeout: with more than a few
seconds it outlives a restart of the server. Where the town or the world is paused, or the game of
the town is away, a note says so while it waits. It is safe to send a handoff again: the server
accepts an idempotency key at most once. With --wait-approval it waits for a person's decision, and
sends the same bytes again. Exits 1 if the command failed, and 0 for every other result; with
--expect it exits 1 for any other status. With --dry-run the server judges the handoff and stores nothing.

Example:

    handoffctl send handoff.json --expect executed --wait-approval 1h`
}

// Run sends the handoff.
func (c *sendCommand) Run(ctx context.Context, a *app) error {
	data, err := a.readUpTo(c.File, maxDocument)
	if err != nil {
		return err
	}
	data = handoffIn(data)
	of := trace.Parse(c.Trace, "")
	if c.Trace != "" && of.IsZero() {
		return usagef("--traceparent: %s is no W3C traceparent, such as "+
			"00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01", show(c.Trace))
	}
	server, err := a.connect()
	if err != nil {
		return err
	}
	server.Trace = func(context.Context) trace.Context { return of }
	server.OnPaused = func(_ string, why *client.UnavailableError) {
		fmt.Fprintf(a.err, "handoffctl: note: it waits: %s\n", strings.TrimSuffix(why.Message, "."))
	}
	server.ApprovalWait = c.Wait
	server.OnApproval = func(o *client.Outcome) {
		fmt.Fprintf(a.err, "handoffctl: note: %s waits for a person's approval\n", o.Result.HandoffID)
	}
	send := server.SendJSON
	if c.DryRun {
		send = server.DryRunJSON
	}
	outcome, err := send(ctx, data)
	if err != nil {
		return hinted(err, data)
	}
	got := answerOf(outcome)
	switch {
	case a.raw():
		err = a.printRaw(got.Result)
	case a.json():
		err = a.printJSON(got)
	case c.DryRun:
		err = a.printDryRun(&got)
	default:
		err = a.printResult(got.RunID, got.parsed)
	}
	if err != nil {
		return err
	}
	if c.Expect == "" && !c.DryRun && got.parsed.Status == handoff.Failed {
		return &failedError{fmt.Sprintf("the command failed: %s", got.parsed.ReasonCode)}
	}
	if c.Expect != "" && got.parsed.Status != c.Expect {
		return &failedError{fmt.Sprintf("the status is %s, not the expected %s",
			got.parsed.Status, c.Expect)}
	}
	return nil
}

// hinted adds to the error of a handoff that may have been carried out how to find that out.
func hinted(err error, data []byte) error {
	var unavailable *client.UnavailableError
	h, unreadable := handoff.Parse(data, schemas.Limits{})
	if !errors.As(err, &unavailable) || unavailable.Code != "TIMEOUT" || unreadable != nil {
		return err
	}
	said := *unavailable
	said.Message += fmt.Sprintf("\n  hint: send it again, which is safe, or ask: handoffctl "+
		"result get %s --town %s",
		h.IdempotencyKey, show(h.Proposal.TownID))
	return &said
}

// answer is what a handoff got: the result's bytes as they came, and what they say.
type answer struct {
	RunID  string         `json:"runId,omitzero"`
	Result jsontext.Value `json:"result"`
	// DryRun reports that nothing was stored, and Apply what would apply the command, where that is
	// not the engine.
	DryRun bool   `json:"dryRun,omitzero"`
	Apply  string `json:"apply,omitzero"`
	parsed *handoff.Result
}

// sendHandoff sends one handoff and verifies its result as an agent would.
func sendHandoff(ctx context.Context, server *client.Client, data []byte) (answer, error) {
	got, err := server.SendJSON(ctx, data)
	if err != nil {
		return answer{}, err
	}
	return answerOf(got), nil
}

// printDryRun prints the result that a handoff would get.
func (a *app) printDryRun(got *answer) error {
	note := "dry run: nothing was stored\n"
	switch {
	case got.parsed != nil && got.parsed.ReasonCode == handoff.ReasonApprovalRequired:
		note = "dry run: nothing was stored; the proposal would need approval\n"
	case got.Apply != "":
		note = "dry run: nothing was stored; the result is what the rules expect of " +
			got.Apply + "\n"
	}
	if err := a.printf("%s", note); err != nil {
		return err
	}
	return a.printResult("", got.parsed)
}

func answerOf(got *client.Outcome) answer {
	return answer{RunID: got.RunID, Result: got.JSON, DryRun: got.DryRun, Apply: got.Apply,
		parsed: got.Result}
}

// handoffIn returns the handoff in a fixture, and anything else as it is.
func handoffIn(data []byte) []byte {
	var f struct {
		SchemaVersion jsontext.Value `json:"schemaVersion"`
		Handoff       jsontext.Value `json:"handoff"`
	}
	if json.Unmarshal(data, &f, lenient) == nil && f.SchemaVersion == nil && f.Handoff != nil {
		return f.Handoff
	}
	return data
}
