package junit_test

import (
	"fmt"

	"worldengine/worldengine/internal/tool/junit"
)

func ExampleMarshal() {
	report, err := junit.Marshal(&junit.Suite{Name: "oak.json", Cases: []junit.Case{
		{Name: "talk", Class: "oak.json", Seconds: "0.010"},
		{Name: "wall", Class: "oak.json", Seconds: "0.020", Failure: &junit.Text{
			Message: "expected executed, got stale", Text: "- /status: \"executed\"\n+ /status: \"stale\""}},
		{Name: "mine", Class: "oak.json", Seconds: "0", Skipped: &junit.Text{Message: "it expects nothing"}},
	}})
	fmt.Print(string(report), err)
	// Output:
	// <?xml version="1.0" encoding="UTF-8"?>
	// <testsuites tests="3" failures="1" errors="0" skipped="1">
	//   <testsuite name="oak.json" tests="3" failures="1" errors="0" skipped="1">
	//     <testcase name="talk" classname="oak.json" time="0.010"></testcase>
	//     <testcase name="wall" classname="oak.json" time="0.020">
	//       <failure message="expected executed, got stale">- /status: &#34;executed&#34;&#xA;+ /status: &#34;stale&#34;</failure>
	//     </testcase>
	//     <testcase name="mine" classname="oak.json" time="0">
	//       <skipped message="it expects nothing"></skipped>
	//     </testcase>
	//   </testsuite>
	// </testsuites>
	// <nil>
}
