package client_test

import (
	"context"
	"fmt"
	"log"
	"log/slog"
	"os"

	"worldengine/handoff"
	"worldengine/testdata/worlds"
	"worldengine/worldengine/client"
	"worldengine/worldengine/internal/serve/embedded"
	"worldengine/worldengine/internal/serve/hosting"
	"worldengine/worldengine/internal/serve/server"
)

// demo starts a server with the towns of the examples, for the examples of this package.
func demo() (url string, stop func()) {
	data, err := os.MkdirTemp("", "client-example-")
	if err != nil {
		log.Fatal(err)
	}
	srv, err := server.Start(context.Background(), server.Config{
		Embedded: embedded.Config{Listen: "127.0.0.1:0", Data: data, Sync: embedded.SyncInterval},
		Worlds:   hosting.Config{Towns: worlds.Frontier},
		Logger:   slog.New(slog.DiscardHandler),
	})
	if err != nil {
		log.Fatal(err)
	}
	return srv.URL(), func() {
		_ = srv.Close(context.Background())
		_ = os.RemoveAll(data)
	}
}

// An agent looks at a town, proposes one command for it, and sends it.
func Example() {
	url, stop := demo() // of your own: nats://127.0.0.1:4222
	defer stop()
	ctx := context.Background()

	engine, err := client.Connect(url, client.Options{})
	if err != nil {
		log.Fatal(err)
	}
	defer engine.Close()
	town, err := engine.Town(ctx, "town-threatened")
	if err != nil {
		log.Fatal(err)
	}
	h, err := handoff.New(handoff.Proposal{
		Type: handoff.AdvanceProject, ActorID: "mayor-1", TownID: town.TownID, Priority: 0.8,
		Reason: "The wall is low.", Args: map[string]string{"projectId": "wall-perimeter"},
		SnapshotHash: town.SnapshotHash, DecisionEpoch: town.DecisionEpoch,
	})
	if err != nil {
		log.Fatal(err)
	}
	outcome, err := engine.Send(ctx, h)
	if err != nil {
		log.Fatal(err)
	}
	fmt.Println(outcome.Result.Status, outcome.Result.ReasonCode)
	// Output: executed EXECUTED
}

// talkTo sends a handoff for the town town-threatened.
func talkTo(ctx context.Context, engine *client.Client) *client.Outcome {
	town, err := engine.Town(ctx, "town-threatened")
	if err != nil {
		log.Fatal(err)
	}
	h, err := handoff.New(handoff.Proposal{
		Type: handoff.TalkToTownsfolk, ActorID: "mayor-1", TownID: town.TownID, Reason: "They are sad.",
		Args:         map[string]string{"talkType": "casual"},
		SnapshotHash: town.SnapshotHash, DecisionEpoch: town.DecisionEpoch,
	})
	if err != nil {
		log.Fatal(err)
	}
	outcome, err := engine.Send(ctx, h)
	if err != nil {
		log.Fatal(err)
	}
	return outcome
}

// The events of a run are followed to its end, the events of a town until the context is done.
func ExampleClient_Events() {
	url, stop := demo()
	defer stop()
	ctx := context.Background()
	engine, err := client.Connect(url, client.Options{})
	if err != nil {
		log.Fatal(err)
	}
	defer engine.Close()
	outcome := talkTo(ctx, engine) // as in the example of the package
	for event, err := range engine.Events(ctx, client.Follow{RunID: outcome.RunID, AfterSeq: 7}) {
		if err != nil {
			log.Fatal(err)
		}
		fmt.Println(event.RunSeq, event.EventType, event.StepID)
	}
	// Output:
	// 8 StepStarted apply
	// 9 StepCompleted apply
	// 10 RunCompleted
}
