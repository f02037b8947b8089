package conformance_test

import (
	"context"
	"log"

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
	rows, err := conformance.Check(context.Background(), nc, conformance.Config{
		Subject: wire.ApplySubject(wire.DefaultWorld, wire.TownToken("town-threatened")),
	})
	if err != nil {
		log.Fatal(err)
	}
	for _, row := range rows {
		log.Println(row.Verdict, row.Name, row.Todo)
	}
}
