package messages_test

import (
	"fmt"

	"github.com/go-json-experiment/json"

	"worldengine/worldengine/messages"
)

// A program without worldengine/client makes the payload of a request, and sends it on the subject of the verb.
func Example() {
	request, err := json.Marshal(messages.RunList{TownID: "town-threatened", Limit: 10})
	fmt.Println(string(request), err)
	// Output:
	// {"townId":"town-threatened","limit":10} <nil>
}
