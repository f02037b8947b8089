package main

import (
	"context"
	"errors"
	"fmt"
	"net/url"
	"strings"
	"time"

	"github.com/go-json-experiment/json"
	"github.com/nats-io/nats.go/jetstream"

	"worldengine/cmd/handoffctl/internal/client"
	"worldengine/runevents"
	"worldengine/worldengine"
	"worldengine/worldengine/follow"
)

// watchCommand shows run events as they come.
type watchCommand struct {
	Town     string        `help:"Only the events of this town."`
	Type     string        `help:"Only events of this type, such as RunCompleted."`
	RunID    string        `name:"run" help:"Only the events of this run."`
	Since    time.Duration `help:"Begin with the events of this long ago, such as 10m."`
	MaxCount int           `name:"count" help:"End after this many events; 0 goes on until Ctrl-C."`
}

// Help is the command's long help.
func (watchCommand) Help() string {
	return `Shows what happens in the world, an event a line, until Ctrl-C. It reads the event stream, so it goes
on where it was when the server was away. With -o json: a RunEventRecord a line.

Example:

    handoffctl watch --town town-threatened --type RunCompleted`
}

// Run shows events until ctx is done.
func (c *watchCommand) Run(ctx context.Context, a *app) error {
	nc, err := a.dial("handoffctl watch")
	if err != nil {
		return err
	}
	defer nc.Close()
	js, err := jetstream.New(nc)
	if err != nil {
		return err
	}
	stream, err := js.Stream(ctx, worldengine.EventStream(a.flags.World))
	if err != nil {
		return &client.UnavailableError{
			Code: "NO_EVENTS", Message: "the world " + a.flags.World + " has no event stream here", Cause: err,
		}
	}
	consumer, err := stream.OrderedConsumer(ctx, c.consumer(a.flags.World))
	if err != nil {
		return &client.UnavailableError{Code: "NO_EVENTS", Message: sentence(err), Cause: err}
	}
	defer follow.Release(stream, consumer)
	messages, err := consumer.Messages()
	if err != nil {
		return &client.UnavailableError{Code: "NO_EVENTS", Message: sentence(err), Cause: err}
	}
	defer context.AfterFunc(ctx, messages.Stop)()
	for shown := 0; c.MaxCount == 0 || shown < c.MaxCount; {
		msg, err := messages.Next()
		switch {
		case ctx.Err() != nil || errors.Is(err, jetstream.ErrMsgIteratorClosed):
			return nil
		case errors.Is(err, jetstream.ErrNoHeartbeat):
			continue // the server is away; the consumer is made again when it is back
		case err != nil:
			return &client.UnavailableError{Code: "NO_EVENTS", Message: sentence(err), Cause: err}
		case c.Type != "" && msg.Headers().Get(worldengine.EventTypeHeader) != c.Type:
			continue
		}
		if err := c.show(a, msg); err != nil {
			return err
		}
		shown++
	}
	return nil
}

func (c *watchCommand) consumer(world string) jetstream.OrderedConsumerConfig {
	token, runID := "*", "*"
	if c.Town != "" {
		token = worldengine.TownToken(c.Town)
	}
	if c.RunID != "" {
		runID = c.RunID
	}
	config := jetstream.OrderedConsumerConfig{
		FilterSubjects: []string{worldengine.EventSubject(world, token, runID)},
		DeliverPolicy:  jetstream.DeliverNewPolicy,
	}
	if c.Since > 0 {
		from := time.Now().Add(-c.Since)
		config.DeliverPolicy, config.OptStartTime = jetstream.DeliverByStartTimePolicy, &from
	}
	return config
}

// show prints one event.
func (c *watchCommand) show(a *app, msg jetstream.Msg) error {
	if a.json() {
		return a.printRaw(msg.Data())
	}
	var e runevents.Record
	if err := json.Unmarshal(msg.Data(), &e); err != nil {
		return fmt.Errorf("an event of the server cannot be read: %w", err)
	}
	at := e.PersistedAt
	if persisted, err := time.Parse(time.RFC3339, at); err == nil {
		at = persisted.Local().Format("15:04:05.000")
	}
	return a.printf("%s  %-20s  %.8s %2d  %-14s  %-18s  %s\n", at, show(townOfSubject(msg.Subject())),
		show(e.RunID), e.RunSeq, show(string(e.EventType)), show(e.StepID), show(sense(&e)))
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
