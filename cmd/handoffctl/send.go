package main

import (
	"context"
	"fmt"

	"github.com/go-json-experiment/json/jsontext"
	"github.com/nats-io/nats.go"

	"worldengine/cmd/handoffctl/internal/client"
	"worldengine/handoff"
	"worldengine/schemas"
	"worldengine/worldengine"
)

// sendCommand sends one handoff.
type sendCommand struct {
	File   string         `arg:"" help:"File with the handoff, - for standard input."`
	Expect handoff.Status `help:"Exit 1 unless the result has this status: executed, rejected, stale, duplicate or failed." enum:",executed,rejected,stale,duplicate,failed" default:"" placeholder:"STATUS"`
}

// Help is the command's long help.
func (sendCommand) Help() string {
	return `Sends the bytes as they are, so that the server judges them, and shows the result that comes back.
A reply of 429 or 503 is asked again after the pause that it asks for, up to --timeout. Sending a
handoff again is safe: its key tells. Exits 0 for any result, --expect asks for one.

Example:

    handoffctl send handoff.json --expect executed`
}

// Run sends the handoff.
func (c *sendCommand) Run(ctx context.Context, a *app) error {
	data, err := a.read(c.File)
	if err != nil {
		return err
	}
	server, err := a.connect()
	if err != nil {
		return err
	}
	defer server.Conn.Close()
	got, err := sendHandoff(ctx, server, data)
	if err != nil {
		return err
	}
	if a.json() {
		err = a.printJSON(got)
	} else {
		err = a.printResult(got.RunID, got.parsed)
	}
	if err != nil {
		return err
	}
	if c.Expect != "" && got.parsed.Status != c.Expect {
		return &failedError{fmt.Sprintf("the status is %s, not the expected %s", got.parsed.Status, c.Expect)}
	}
	return nil
}

// answer is what a handoff got: the result's bytes as they came, and what they say.
type answer struct {
	RunID  string         `json:"runId"`
	Result jsontext.Value `json:"result"`
	parsed *handoff.Result
}

// sendHandoff sends one handoff and verifies its result as an agent would.
func sendHandoff(ctx context.Context, server *client.Client, data []byte) (answer, error) {
	msg, err := server.Request(ctx, client.Handoff, data)
	if err != nil {
		return answer{}, err
	}
	return answerOf(msg)
}

func answerOf(msg *nats.Msg) (answer, error) {
	got := answer{RunID: msg.Header.Get(worldengine.RunIDHeader), Result: msg.Data}
	var err error
	if got.parsed, err = handoff.ParseResult(msg.Data, schemas.Limits{}); err != nil {
		return got, &client.UnavailableError{
			Code:    "INVALID_RESULT",
			Message: "the server's answer is not a valid result: " + sentence(err), Cause: err,
		}
	}
	return got, nil
}
