package main

import (
	"cmp"
	"fmt"
	"net/url"
	"strings"
	"time"

	"github.com/go-json-experiment/json"

	"worldengine/handoff"
	"worldengine/runevents"
	"worldengine/worldengine/client"
)

// eventView prints events as they come: a line each, and a line with the date where that changes.
type eventView struct {
	*app
	alerts bool   // they are alerts
	date   string // of the last event
}

// show prints one event.
func (v *eventView) show(event *sighting) error {
	switch {
	case v.json():
		return v.printRaw(event.data)
	case v.alerts:
		return v.printAlert(event.data)
	case event.change != nil:
		return v.printChange(event.change)
	}
	var e runevents.Record
	if err := json.Unmarshal(event.data, &e); err != nil {
		return fmt.Errorf("an event of the server cannot be read: %w", err)
	}
	at := e.PersistedAt
	if persisted, err := time.Parse(time.RFC3339, at); err == nil {
		if at, err = v.clock(persisted); err != nil {
			return err
		}
	}
	return v.printf("%s  %-20s  %s %2d  %s  %-18s  %s\n", at, show(townOfSubject(event.subject)),
		v.briefID(e.RunID), e.RunSeq, v.eventType(&e), show(e.StepID),
		show(appended(v.sense(&e), e.AppendedBy)))
}

// clock returns the time of day, and prints the date before it where that has changed.
func (v *eventView) clock(at time.Time) (string, error) {
	at = at.Local()
	if date := at.Format(time.DateOnly); date != v.date {
		v.date = date
		if err := v.printf("%s\n", date); err != nil {
			return "", err
		}
	}
	return at.Format("15:04:05.000"), nil
}

// printChange prints a state that town.put, town.patch or a world file gave to a town, or that fsck
// put back. What else changed of a town, its run events say.
func (v *eventView) printChange(change *client.Change) error {
	name, what := "TownPut", "put or patched"
	switch change.Cause {
	case "put":
	case "mend":
		name, what = "TownMended", "put back to its last readable state"
	default:
		return nil
	}
	at := show(change.At)
	if stored, err := time.Parse(time.RFC3339, change.At); err == nil {
		if at, err = v.clock(stored); err != nil {
			return err
		}
	}
	if change.ActorID != "" {
		what += " by " + change.ActorID
	}
	return v.printf("%s  %-20s  %s  %s\n", at, show(change.TownID),
		v.coloured(fmt.Sprintf("%-14s", name), plain), show(fmt.Sprintf("%s: day %d, snapshot %s",
			what, change.Epoch, v.briefID(change.Hash))))
}

// eventType returns the column of an event's type, in the tone of what the event says.
func (v *eventView) eventType(e *runevents.Record) string {
	text := fmt.Sprintf("%-14s", show(string(e.EventType)))
	if e.EventType == runevents.RunCompleted {
		var outcome struct {
			Status handoff.Status `json:"status"`
		}
		_ = json.Unmarshal(e.Payload, &outcome) // a run of another producer may not say
		return v.coloured(text, runTone(runevents.RunSucceeded, outcome.Status))
	}
	tones := map[string]tone{"bad": bad, "wait": warn}
	return v.coloured(text, cmp.Or(tones[e.EventType.Spec().Tone], plain))
}

// printAlert prints an alert.
func (v *eventView) printAlert(data []byte) error {
	var alert runevents.Alert
	if err := json.Unmarshal(data, &alert); err != nil {
		return fmt.Errorf("an alert of the server cannot be read: %w", err)
	}
	at := show(alert.At)
	if raised, err := time.Parse(time.RFC3339, alert.At); err == nil {
		at = raised.Local().Format(time.DateTime)
	}
	return v.printf("%s  %s  %-26s  %s  %s\n", at,
		v.coloured(show(string(alert.Severity)), severityTone(alert.Severity)),
		show(string(alert.Code)), v.briefID(alert.RunID), show(alert.Message))
}

// townOfSubject returns the town of an event's subject: its id, or the token of one whose id is too
// long.
func townOfSubject(subject string) string {
	tokens := strings.Split(subject, ".")
	if len(tokens) < 2 {
		return subject
	}
	token := tokens[len(tokens)-2]
	if token == "=world" { // the events of a signal that no town has
		return "-"
	}
	if id, err := url.PathUnescape(token); err == nil {
		return id
	}
	return token
}

// appended adds the producer that appended an event, or began a run, to what that says; the engine's
// have none.
func appended(said, by string) string {
	if by == "" {
		return said
	}
	return strings.TrimSpace(said + " (appended by " + by + ")")
}

// sense says in short what an event's payload means.
func (a *app) sense(e *runevents.Record) string {
	var p struct {
		Command     string `json:"command"`
		Status      string `json:"status"`
		Reason      string `json:"reason"`
		SignalID    string `json:"signalId"`
		ReasonCode  string `json:"reasonCode"`
		Evaluated   bool   `json:"evaluated"`
		Passed      *bool  `json:"passed"`
		Duplicate   *bool  `json:"duplicate"`
		ActualEpoch *int64 `json:"actualDecisionEpoch"`
		PostEpoch   *int64 `json:"postExecutionDecisionEpoch"`
		Failures    []struct {
			Detail string `json:"detail"`
		} `json:"failures"`
		Error struct {
			Code    string `json:"code"`
			Message string `json:"message"`
		} `json:"error"`
		said `json:",inline"`
	}
	if json.Unmarshal(e.Payload, &p) != nil {
		return a.brief(e.Payload)
	}
	switch {
	case p.Command != "":
		return p.Command
	case e.AppendedBy != "": // what it claims of signals and results stays a payload
		return a.brief(e.Payload)
	case p.Signal != "":
		return p.String()
	case p.Status != "":
		return strings.TrimSpace(p.Status + " " + p.ReasonCode)
	case p.SignalID != "":
		return strings.TrimSuffix(fmt.Sprintf("by signal %s: %s", a.briefID(p.SignalID), p.Reason),
			": ")
	case p.Reason != "":
		return "because of " + p.Reason
	case p.Error.Code != "":
		return p.Error.Code + ": " + p.Error.Message
	case p.Duplicate != nil && *p.Duplicate:
		return "the key was accepted before"
	case p.Duplicate != nil:
		return "the key is free"
	case p.PostEpoch != nil:
		return fmt.Sprintf("the town is at day %d", *p.PostEpoch)
	case p.Passed != nil && !*p.Passed && p.ActualEpoch != nil:
		return fmt.Sprintf("the town is at day %d and not as the agent saw it", *p.ActualEpoch)
	case p.Passed != nil && !*p.Passed && len(p.Failures) > 0:
		return p.Failures[0].Detail
	case p.Passed != nil && *p.Passed:
		return "passed"
	}
	return a.brief(e.Payload)
}
