package handoff_test

import (
	"errors"
	"fmt"
	"strings"

	"worldengine/handoff"
	"worldengine/schemas"
)

// An agent makes the handoff of a proposal, and sends its bytes.
func Example() {
	h, err := handoff.New(handoff.Proposal{
		Type: handoff.AdvanceProject, ActorID: "mayor-1", TownID: "town-threatened",
		Priority: 0.8, Reason: "The wall is low.", Args: map[string]string{"projectId": "wall-perimeter"},
		SnapshotHash: strings.Repeat("0", 64), DecisionEpoch: 7,
	})
	if err != nil {
		fmt.Println(err)
		return
	}
	fmt.Println(h.Command)
	fmt.Println(h.HandoffID)
	// Output:
	// project advance town-threatened wall-perimeter
	// handoff_170ffb1786acb153bd9e7a50053983b46086e4ae38dfd9426243448ce58d7fab
}

// A payload that is no handoff has one violation for each mistake, with its place.
func ExampleParse() {
	_, err := handoff.Parse([]byte(`{"schemaVersion": "execution-handoff.v1", "advisory": 1}`), schemas.Limits{})
	var invalid *schemas.ValidationError
	if errors.As(err, &invalid) {
		for _, v := range invalid.Violations[:2] {
			fmt.Printf("%s: %s\n", v.Path, v.Message)
		}
	}
	// Output:
	// /advisory: must be true
	// /command: is required
}

// A snapshotHash is the hash of the snapshot's canonical JSON.
func ExampleHash() {
	tree, err := schemas.Decode([]byte(`{"b": 1.50, "a": [true, "é"]}`), schemas.Limits{})
	if err != nil {
		fmt.Println(err)
		return
	}
	canonical := handoff.AppendCanonical(nil, tree)
	fmt.Println(string(canonical))
	fmt.Println(handoff.Hash(canonical))
	// Output:
	// {"a":[true,"é"],"b":1.5}
	// eb11c7301c4476278512561c87fc3425f56246261f98c3e1127a27ba16a54c4a
}
