// Command agent-loop is the loop that loses no decision and repeats none: it stores a handoff before it sends
// it, and sends the stored bytes until it has their result. It may be killed at any moment.
//
//	go run ./examples/agent-loop FILE
package main

import (
	"context"
	"errors"
	"fmt"
	"log"
	"os"
	"time"

	"worldengine/handoff"
	"worldengine/schemas"
	"worldengine/worldengine/client"
)

func main() {
	url, connection := client.LoadEnvironment(os.LookupEnv)
	engine, err := client.Connect(url, client.Options{Connection: connection})
	if err != nil {
		log.Fatal(err)
	}
	defer engine.Close()
	outcome, err := settle(context.Background(), engine, os.Args[1])
	if err != nil {
		log.Fatal(err)
	}
	fmt.Println(outcome.Result.Status, outcome.Result.ReasonCode, outcome.Result.ResultID)
}

// settle brings the handoff of a file to its result; without the file it decides first.
func settle(ctx context.Context, engine *client.Client, file string) (*client.Outcome, error) {
	body, err := os.ReadFile(file)
	if errors.Is(err, os.ErrNotExist) {
		body, err = decide(ctx, engine, file)
	}
	if err != nil {
		return nil, err
	}
	for {
		outcome, err := result(ctx, engine, body)
		refused, ok := errors.AsType[*client.ReplyError](err)
		if err == nil || ok && refused.Refused() && refused.RetryAfter == 0 { // it has a result, or never will
			return outcome, errors.Join(err, os.Remove(file))
		}
		log.Print("again in a second: ", err) // not known, or not now: the same bytes are safe
		time.Sleep(time.Second)
	}
}

// result sends a stored handoff. It may have been sent before: then a duplicate names the first result.
func result(ctx context.Context, engine *client.Client, body []byte) (*client.Outcome, error) {
	outcome, err := engine.SendJSON(ctx, body)
	if err != nil || outcome.Result.Status != handoff.Duplicate {
		return outcome, err
	}
	h, err := handoff.Parse(body, schemas.Limits{})
	if err != nil {
		return nil, err
	}
	first, err := engine.Result(ctx, h.IdempotencyKey, h.Proposal.TownID)
	if err != nil || first.Result.HandoffID == h.HandoffID {
		return first, err
	}
	return outcome, nil // another handoff has used the key
}

// decide makes a handoff, and stores it before anybody sees it.
func decide(ctx context.Context, engine *client.Client, file string) ([]byte, error) {
	town, err := engine.Town(ctx, "town-threatened")
	if err != nil {
		return nil, err
	}
	h, err := handoff.New(handoff.Proposal{
		Type: handoff.TalkToTownsfolk, Args: map[string]string{"talkType": "morale-boost"},
		ActorID: "mayor-1", Reason: "The town is afraid.", Priority: 0.5, TownID: town.TownID,
		SnapshotHash: town.SnapshotHash, DecisionEpoch: town.DecisionEpoch,
	})
	if err != nil {
		return nil, err
	}
	body, err := h.MarshalWire()
	if err != nil {
		return nil, err
	}
	return body, store(file, body)
}

// store writes a file as a whole: after a crash the file is missing, or has all of the handoff.
func store(file string, body []byte) error {
	f, err := os.Create(file + ".new")
	if err != nil {
		return err
	}
	_, err = f.Write(body)
	if err = errors.Join(err, f.Sync(), f.Close()); err != nil {
		return err
	}
	return os.Rename(file+".new", file)
}
