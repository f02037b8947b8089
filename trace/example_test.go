package trace_test

import (
	"fmt"

	"worldengine/trace"
)

// A message passes on the trace of the message that caused it.
func Example() {
	received := map[string][]string{"Traceparent": {"00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01"}}
	c := trace.Extract(received)
	fmt.Println(c.TraceID())
	fmt.Println(c.Inject(nil))
	// Output:
	// 4bf92f3577b34da6a3ce929d0e0e4736
	// map[traceparent:[00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01]]
}
