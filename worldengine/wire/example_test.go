package wire_test

import (
	"fmt"

	"worldengine/worldengine/wire"
)

// Subjects name towns by their tokens.
func Example() {
	town := wire.TownToken("Town 1")
	fmt.Println(wire.Subject("main", string(wire.Handoff)))
	fmt.Println(wire.ApplySubject("main", town))
	fmt.Println(wire.EventsSubject("main", town))
	// Output:
	// worldengine.v1.main.handoff
	// worldengine.v1.main.apply.Town%201
	// worldengine.v1.main.events.Town%201
}
