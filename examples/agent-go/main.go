// Command agent-go is a minimal agent: it looks at a town, proposes to advance a project, hands the
// proposal off, and prints the result.
package main

import (
	"cmp"
	"context"
	"fmt"
	"log"
	"os"

	"github.com/nats-io/nats.go"

	"worldengine/handoff"
	"worldengine/worldengine/client"
)

func main() {
	if err := run(context.Background()); err != nil {
		log.Fatal(err)
	}
}

func run(ctx context.Context) error {
	// The environment variables of the NATS command line name the server and the credentials:
	// NATS_URL, NATS_USER, …
	url, connection := client.LoadEnvironment(os.LookupEnv)
	engine, err := client.Connect(cmp.Or(url, nats.DefaultURL),
		client.Options{Connection: connection})
	if err != nil {
		return err
	}
	defer engine.Close()

	// 1. Look at the town.
	town, err := engine.Town(ctx, "town-threatened")
	if err != nil {
		return err
	}

	// 2. Propose. New derives the ids, the command and the requirements, and checks them.
	h, err := handoff.New(handoff.Proposal{
		Type: handoff.AdvanceProject, ActorID: "mayor-1", TownID: town.TownID,
		Priority: 0.8, Reason: "The wall is low.", ReasonTags: []string{"threat"},
		Args:         map[string]string{"projectId": "wall-perimeter"},
		SnapshotHash: town.SnapshotHash, DecisionEpoch: town.DecisionEpoch,
		Preconditions: []handoff.Precondition{
			{Kind: handoff.ProjectExists, TargetID: "wall-perimeter"},
		},
	})
	if err != nil {
		return err
	}

	// 3. Hand it off. Send retries if that can help, and verifies the result.
	outcome, err := engine.Send(ctx, h)
	if err != nil {
		return err
	}
	result := outcome.Result
	fmt.Println(result.Status, result.ReasonCode, result.ResultID, "run", outcome.RunID)
	return nil
}
