package handoffctl

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"
	"github.com/nats-io/nats.go"

	"worldengine/handoff"
	"worldengine/runevents"
	"worldengine/worldengine/client"
	"worldengine/worldengine/internal/core/machine"
	"worldengine/worldengine/messages"
)

// watchCommand shows run events, or alerts, as they come.
type watchCommand struct {
	Alerts   bool          `help:"Show operational alerts instead of events." xor:"town,run,type,idle"`
	Town     string        `help:"Show only the events of this town." xor:"town"`
	Type     string        `help:"Show only the events of this type, such as RunCompleted." xor:"type"`
	RunID    string        `name:"run" help:"Show only the events of this run." xor:"run"`
	Since    time.Duration `help:"Begin with the events of this age, such as 10m."`
	MaxCount int           `name:"limit" aliases:"count" help:"End after this many events; 0 to go on until Ctrl-C."`
	Idle     time.Duration `name:"until-idle" help:"End if no event comes for this time, such as 2s, and no command is being applied." placeholder:"DURATION" xor:"idle"`

	shown  int
	enough bool // MaxCount were shown
}

func (c *watchCommand) count() {
	c.shown++
	c.enough = c.shown == c.MaxCount
}

// Run shows events until ctx is done, or enough were shown.
func (c *watchCommand) Run(ctx context.Context, a *app) (err error) {
	if c.RunID, err = a.runID(ctx, c.RunID, false); err != nil {
		return err
	}
	nc, err := a.dial("handoffctl watch", nats.MaxReconnects(-1))
	if err != nil {
		return err
	}
	watch := c.watchEvents
	if c.Alerts {
		watch = c.watchAlerts
	}
	if err = watch(ctx, a, a.client(nc)); ctx.Err() != nil { // an interrupt ended it
		return nil
	}
	return err
}

// watchEvents shows the events of commits.
func (c *watchCommand) watchEvents(ctx context.Context, a *app, server *client.Client) error {
	// A world that nobody serves is an error now, and an interruption later.
	end, err := server.EventList(ctx, messages.EventListRequest{TownID: c.Town})
	if err != nil {
		return err
	}
	follow := client.Follow{TownID: c.Town, After: end.Cursor, Idle: c.Idle}
	if c.Since > 0 {
		follow.After, follow.From = "", time.Now().Add(-c.Since)
	}
	for busy := true; busy; {
		for commit, err := range server.Commits(ctx, follow) {
			if lost, ok := errors.AsType[*client.LossError](err); ok {
				follow.After = lost.Cursor
				fmt.Fprintln(a.err, "handoffctl:", sentence(lost))
				continue
			}
			if err == nil {
				follow.After = commit.Cursor
				err = c.show(ctx, a, server, &commit)
			}
			if err != nil || c.enough {
				return err
			}
		}
		// If the user may not ask, only the silence counts.
		control, _ := server.Control(ctx, c.Town)
		busy = control.Applying > 0
	}
	return nil
}

// show shows the wanted events of a commit, up to MaxCount, or a change of a town without events.
func (c *watchCommand) show(
	ctx context.Context, a *app, server *client.Client, commit *messages.Commit,
) error {
	if c.RunID == "" && c.Type == "" && !a.json() && changeNames[commit.Cause] != "" {
		if change, is := server.ChangeOf(ctx, commit); is {
			return a.printChange(&change)
		}
	}
	for _, data := range commit.Events {
		var e runevents.Record
		if err := json.Unmarshal(data, &e); err != nil {
			return fmt.Errorf("an event of the server cannot be read: %w", err)
		}
		if cmp.Or(c.RunID, e.RunID) != e.RunID ||
			c.Type != "" && c.Type != string(e.EventType) {
			continue
		}
		if err := a.printEvent(commit.TownID, &e, data); err != nil {
			return err
		}
		if c.count(); c.enough {
			break
		}
	}
	return nil
}

// printEvent prints an event of a town, or of none. data is its JSON.
func (a *app) printEvent(townID string, e *runevents.Record, data jsontext.Value) error {
	if a.json() {
		return a.printRaw(data)
	}
	return a.printf("%s  %-20s  %s %2d  %s  %-18s  %s\n", localTime(e.PersistedAt), orDash(townID),
		a.briefID(e.RunID), e.RunSeq, a.eventType(e), orDash(e.StepID),
		orDash(appended(a.sense(e), e.AppendedBy)))
}

const clockFormat = "15:04:05.000"

// localTime returns an RFC 3339 time in the local zone, and any other text as it is.
func localTime(text string) string {
	at, err := time.Parse(time.RFC3339, text)
	if err != nil {
		return show(text)
	}
	return at.Local().Format(time.DateOnly + " " + clockFormat)
}

// changeNames are the names of the changes that are shown, by their cause. Other commits are shown
// by their run events.
var changeNames = map[string]string{"put": "TownPut", "mend": "TownMended"}

// printChange prints a state that town.put, town.patch or a world file gave to a town, or that fsck
// put back.
func (a *app) printChange(change *client.Change) error {
	by := "put or patched"
	if change.Cause == "mend" {
		by = "put back to its last readable state"
	}
	if change.ActorID != "" {
		by += " by " + change.ActorID
	}
	name := a.coloured(fmt.Sprintf("%-14s", changeNames[change.Cause]), plain)
	return a.printf("%s  %-20s  %s  %s\n", localTime(change.At), show(change.TownID), name, show(
		fmt.Sprintf("%s: day %d, snapshot %s", by, change.Epoch, a.briefID(change.Hash))))
}

// eventType returns the column of an event's type, in the tone of the event.
func (a *app) eventType(e *runevents.Record) cell {
	text := fmt.Sprintf("%-14s", show(string(e.EventType)))
	if e.EventType == runevents.RunCompleted {
		var ended runOutcome
		if e.AppendedBy == "" {
			_ = json.Unmarshal(e.Payload, &ended) // the engine wrote it
		}
		return a.coloured(text, runTone(runevents.RunStatusCompleted, ended.Status))
	}
	tones := map[string]tone{"bad": bad, "wait": warn}
	return a.coloured(text, tones[e.EventType.Spec().Tone])
}

func (a *app) printAlert(alert *runevents.Alert) error {
	if a.json() {
		return a.printJSON(alert)
	}
	return a.printf("%s  %s  %-26s  %s  %s\n", localTime(alert.At),
		a.coloured(show(string(alert.Severity)), severityTones[alert.Severity]),
		show(string(alert.Code)), a.briefID(alert.RunID), show(alert.Message))
}

// appended adds to the meaning of an event or a run the producer that appended or began it. It adds
// nothing if by is "", which is the engine.
func appended(meaning, by string) string {
	if by == "" {
		return meaning
	}
	return strings.TrimSpace(meaning + " (appended by " + by + ")")
}

// sense returns the meaning of an event's payload in short, or the payload if meaning returns "".
func (a *app) sense(e *runevents.Record) string {
	return cmp.Or(a.meaning(e), a.brief(e.Payload))
}

// meaning returns the meaning of an event's payload in short; "" if the payload lacks the members
// of its type, as another producer's may.
func (a *app) meaning(e *runevents.Record) string {
	var p struct {
		machine.SignalPayload `json:",inline"`
		runOutcome            `json:",inline"`

		Command  string              `json:"command"`
		SignalID string              `json:"signalId"`
		Error    runevents.StepError `json:"error"`
		// From here on, members of the engine's steps.
		Duplicate bool              `json:"duplicate"`
		Passed    bool              `json:"passed"`
		Actual    *int64            `json:"actualDecisionEpoch"`
		Failures  []handoff.Failure `json:"failures"`
		After     *int64            `json:"postExecutionDecisionEpoch"`
	}
	if json.Unmarshal(e.Payload, &p) != nil {
		return ""
	}
	switch {
	case e.EventType == runevents.RunStarted && p.Command != "":
		return p.Command
	case e.AppendedBy != "": // signals and results of another producer are claims: show the payload
		return ""
	case p.Signal != "": // any event of a signal's run
		return signalText(&p.SignalPayload)
	}
	switch e.EventType {
	case runevents.RunCompleted, runevents.RunFailed, runevents.StepFailed:
		if p.Status == "" && p.Error.Code != "" {
			return p.Error.Code + ": " + p.Error.Message
		}
		return p.runOutcome.String()
	case runevents.RunQueued, runevents.RunApproved, runevents.RunPaused, runevents.RunResumed,
		runevents.RunCancelled, runevents.StepSkipped:
		if p.SignalID != "" {
			return strings.TrimSuffix(fmt.Sprintf("by signal %s: %s", a.briefID(p.SignalID),
				p.Reason), ": ")
		}
		if p.Reason != "" {
			return "because of " + p.Reason
		}
	case runevents.StepCompleted:
		switch check := e.StepID; {
		case check == machine.StepDuplicate && p.Duplicate:
			return "the key was accepted before"
		case check == machine.StepDuplicate:
			return "the key is free"
		case check == machine.StepStale && !p.Passed && p.Actual != nil:
			return fmt.Sprintf("the town is at day %d and not as the agent saw it", *p.Actual)
		case check == machine.StepPrecondition && !p.Passed && len(p.Failures) > 0:
			return p.Failures[0].Detail
		case check == machine.StepStale, check == machine.StepPrecondition:
			return "passed"
		case check == machine.StepApply && p.After != nil:
			return fmt.Sprintf("the town is at day %d", *p.After)
		}
	}
	return ""
}

// runOutcome is the outcome in the last event of a run. A run that a producer began has none.
type runOutcome struct {
	Status     handoff.Status     `json:"status"`
	ReasonCode handoff.ReasonCode `json:"reasonCode"`
}

func (o runOutcome) String() string {
	return strings.TrimSpace(string(o.Status) + " " + string(o.ReasonCode))
}
