package conformance_test

import (
	"context"
	"log"
	"os"

	"github.com/nats-io/nats.go"

	"worldengine/worldengine/plugin/conformance"
	"worldengine/worldengine/wire"
)

// The author of a plugin checks it, rule by rule. It needs a plugin, so nothing runs here.
func Example() {
	nc, err := nats.Connect(nats.DefaultURL)
	if err != nil {
		log.Fatal(err)
	}
	defer nc.Close()
	snapshot, err := os.ReadFile("town.json") // the member snapshot of a reply of town.get
	if err != nil {
		log.Fatal(err)
	}
	town, err := conformance.ParseTown(snapshot)
	if err != nil {
		log.Fatal(err)
	}
	rows, err := conformance.Check(context.Background(), nc, conformance.Config{
		Subject: wire.ApplySubject(wire.DefaultWorld, wire.TownToken("town-threatened")), Town: town,
	})
	if err != nil {
		log.Fatal(err)
	}
	for _, row := range rows {
		log.Println(row.Verdict, row.Name, row.Todo)
	}
}
