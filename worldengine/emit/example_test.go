package emit_test

import (
	"context"
	"log"
	"os"

	"worldengine/runevents"
	"worldengine/worldengine/client"
	"worldengine/worldengine/emit"
)

// A worker of a plugin emits the step that it did for a command. It needs a server, so nothing runs here.
func Example() {
	url, credentials := client.LoadEnvironment(os.LookupEnv)
	engine, err := client.Connect(url, client.Options{Connection: credentials})
	if err != nil {
		log.Fatal(err)
	}
	defer engine.Close()
	emitter, err := emit.New(emit.Config{
		Client: engine, TownID: "town-threatened",
		Identity: runevents.Identity{RunID: "run-1"}, // as the request to the plugin has it
	})
	if err != nil {
		log.Fatal(err)
	}
	appended, err := emitter.Emit(context.Background(), runevents.StepStarted, "place-blocks", 1, nil)
	if err != nil {
		log.Fatal(err)
	}
	log.Println("the event has the number", appended.RunSeq)
}
