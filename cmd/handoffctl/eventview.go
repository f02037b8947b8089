package main

import (
	"cmp"
	"fmt"
	"strings"
	"time"

	"github.com/go-json-experiment/json"

	"worldengine/handoff"
	"worldengine/runevents"
	"worldengine/worldengine/client"
	"worldengine/worldengine/machine"
)

// eventView prints events as they come: a line each, and a line with the date when that changes.
type eventView struct {
	*app
	date string // of the last event
}

// printEvent prints an event of a town, or of none.
func (v *eventView) printEvent(townID string, e *runevents.Record) error {
	at, err := v.clock(e.PersistedAt)
	if err != nil {
		return err
	}
	return v.printf("%s  %-20s  %s %2d  %s  %-18s  %s\n", at, orDash(townID), v.briefID(e.RunID),
		e.RunSeq, v.eventType(e), orDash(e.StepID), orDash(appended(v.sense(e), e.AppendedBy)))
}

// clock returns the local time of day of an RFC 3339 time, and prints the date before it if that
// has changed. It returns any other text as it is.
func (v *eventView) clock(text string) (string, error) {
	at, err := time.Parse(time.RFC3339, text)
	if err != nil {
		return show(text), nil
	}
	at = at.Local()
	if date := at.Format(time.DateOnly); date != v.date {
		v.date = date
		if err := v.printf("%s\n", date); err != nil {
			return "", err
		}
	}
	return at.Format(clockFormat), nil
}

const clockFormat = "15:04:05.000"

// changeNames are the names of the changes that are shown, by their cause. Other commits are shown
// by their run events.
var changeNames = map[string]string{"put": "TownPut", "mend": "TownMended"}

// printChange prints a state that town.put, town.patch or a world file gave to a town, or that fsck
// put back.
func (v *eventView) printChange(change *client.Change) error {
	at, err := v.clock(change.At)
	if err != nil {
		return err
	}
	by := "put or patched"
	if change.Cause == "mend" {
		by = "put back to its last readable state"
	}
	if change.ActorID != "" {
		by += " by " + change.ActorID
	}
	name := v.coloured(fmt.Sprintf("%-14s", changeNames[change.Cause]), plain)
	return v.printf("%s  %-20s  %s  %s\n", at, show(change.TownID), name, show(fmt.Sprintf(
		"%s: day %d, snapshot %s", by, change.Epoch, v.briefID(change.Hash))))
}

// eventType returns the column of an event's type, in the tone of the event.
func (v *eventView) eventType(e *runevents.Record) cell {
	text := fmt.Sprintf("%-14s", show(string(e.EventType)))
	if e.EventType == runevents.RunCompleted {
		var ended runOutcome
		if e.AppendedBy == "" {
			ended = reported[runOutcome](e)
		}
		return v.coloured(text, runTone(runevents.RunSucceeded, ended.Status))
	}
	tones := map[string]tone{"bad": bad, "wait": warn}
	return v.coloured(text, tones[e.EventType.Spec().Tone])
}

// printAlert prints an alert.
func (v *eventView) printAlert(data []byte) error {
	if v.json() {
		return v.printRaw(data)
	}
	var alert runevents.Alert
	if err := json.Unmarshal(data, &alert); err != nil {
		return fmt.Errorf("an alert of the server cannot be read: %w", err)
	}
	at := show(alert.At)
	if raised, err := time.Parse(time.RFC3339, alert.At); err == nil {
		at = raised.Local().Format(time.DateTime)
	}
	return v.printf("%s  %s  %-26s  %s  %s\n", at,
		v.coloured(show(string(alert.Severity)), severityTones[alert.Severity]),
		show(string(alert.Code)), v.briefID(alert.RunID), show(alert.Message))
}

// appended adds the producer that appended an event, or began a run, to its meaning; the engine's
// have none.
func appended(meaning, by string) string {
	if by == "" {
		return meaning
	}
	return strings.TrimSpace(meaning + " (appended by " + by + ")")
}

// sense returns the meaning of an event's payload in short. If the payload lacks the members of its
// type, as another producer's may, it returns the payload.
func (a *app) sense(e *runevents.Record) string {
	return cmp.Or(a.meaning(e), a.brief(e.Payload))
}

// meaning is sense, or "" for a payload without the members of its type.
func (a *app) meaning(e *runevents.Record) string {
	var p struct {
		machine.SignalPayload `json:",inline"`
		runOutcome            `json:",inline"`

		Command  string `json:"command"`
		SignalID string `json:"signalId"`
		Error    struct {
			Code    string `json:"code"`
			Message string `json:"message"`
		} `json:"error"`
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
		return completed(e)
	}
	return ""
}

// completed returns the outcome of a step of the engine.
func completed(e *runevents.Record) string {
	switch e.StepID {
	case machine.StepDuplicate:
		if reported[handoff.DuplicateReport](e).Duplicate {
			return "the key was accepted before"
		}
		return "the key is free"
	case machine.StepStale:
		r := reported[handoff.StaleReport](e)
		if !r.Passed && r.ActualDecisionEpoch != nil {
			return fmt.Sprintf("the town is at day %d and not as the agent saw it",
				*r.ActualDecisionEpoch)
		}
		return "passed"
	case machine.StepPrecondition:
		if r := reported[handoff.PreconditionReport](e); !r.Passed && len(r.Failures) > 0 {
			return r.Failures[0].Detail
		}
		return "passed"
	case machine.StepApply:
		if day := reported[handoff.WorldState](e).DecisionEpoch; day != nil {
			return fmt.Sprintf("the town is at day %d", *day)
		}
	}
	return ""
}

// reported reads the payload of a step of the engine.
func reported[T any](e *runevents.Record) (report T) {
	_ = json.Unmarshal(e.Payload, &report) // the engine wrote it
	return report
}

// runOutcome is the outcome in the last event of a run. A run that a producer began has none.
type runOutcome struct {
	Status     handoff.Status     `json:"status"`
	ReasonCode handoff.ReasonCode `json:"reasonCode"`
}

func (o runOutcome) String() string {
	return strings.TrimSpace(string(o.Status) + " " + string(o.ReasonCode))
}
