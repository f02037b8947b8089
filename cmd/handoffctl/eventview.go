package main

import (
	"fmt"
	"net/url"
	"strings"
	"time"

	"github.com/go-json-experiment/json"
	"github.com/nats-io/nats.go/jetstream"

	"worldengine/runevents"
)

// eventView prints events as they come: a line each, and a line with the date where that changes.
type eventView struct {
	*app
	alerts bool   // they are alerts
	date   string // of the last event
}

// show prints one event.
func (v *eventView) show(msg jetstream.Msg) error {
	if v.json() {
		return v.printRaw(msg.Data())
	}
	if v.alerts {
		return v.printAlert(msg.Data())
	}
	var e runevents.Record
	if err := json.Unmarshal(msg.Data(), &e); err != nil {
		return fmt.Errorf("an event of the server cannot be read: %w", err)
	}
	at := e.PersistedAt
	if persisted, err := time.Parse(time.RFC3339, at); err == nil {
		persisted = persisted.Local()
		at = persisted.Format("15:04:05.000")
		if date := persisted.Format(time.DateOnly); date != v.date {
			v.date = date
			if err := v.printf("%s\n", date); err != nil {
				return err
			}
		}
	}
	return v.printf("%s  %-20s  %.8s %2d  %s  %-18s  %s\n", at, show(townOfSubject(msg.Subject())),
		show(e.RunID), e.RunSeq, v.eventType(e.EventType), show(e.StepID), show(sense(&e)))
}

// eventType returns the column of an event's type, in its colour.
func (v *eventView) eventType(event runevents.EventType) string {
	text := fmt.Sprintf("%-14s", show(string(event)))
	if !v.colours {
		return text
	}
	const red, green = "\x1b[31m", "\x1b[32m"
	switch event {
	case runevents.RunFailed, runevents.StepFailed, runevents.RunCancelled:
		return red + text + "\x1b[0m"
	case runevents.RunCompleted:
		return green + text + "\x1b[0m"
	}
	return text
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
	return v.printf("%s  %s  %-26s  %.8s  %s\n", at, show(string(alert.Severity)), show(string(alert.Code)),
		show(alert.RunID), show(alert.Message))
}

// townOfSubject returns the town of an event's subject: its id, or the token of one whose id is too long.
func townOfSubject(subject string) string {
	tokens := strings.Split(subject, ".")
	if len(tokens) < 2 {
		return subject
	}
	token := tokens[len(tokens)-2]
	if token == "=world" { // the events of a signal to the world
		return "the world"
	}
	if id, err := url.PathUnescape(token); err == nil {
		return id
	}
	return token
}

// sense says in short what an event's payload means.
func sense(e *runevents.Record) string {
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
		return short(e.Payload)
	}
	switch {
	case p.Signal != "":
		return p.String()
	case p.Command != "":
		return p.Command
	case p.Status != "":
		return strings.TrimSpace(p.Status + " " + p.ReasonCode)
	case p.SignalID != "":
		return strings.TrimSuffix(fmt.Sprintf("by signal %.8s: %s", p.SignalID, p.Reason), ": ")
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
	return short(e.Payload)
}
