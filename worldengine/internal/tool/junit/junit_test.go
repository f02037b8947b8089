package junit_test

import (
	"fmt"

	"worldengine/worldengine/internal/tool/junit"
)

func ExampleMarshal() {
	report, err := junit.Marshal([]junit.Case{
		{Suite: "oak.json", Name: "talk", Class: "oak.json", Seconds: "0.010"},
		{Suite: "oak.json", Name: "wall", Class: "oak.json", Seconds: "0.020", Failure: &junit.Text{
			Message: "expected executed, got stale", Text: "- /status: \"executed\"\n+ /status: \"stale\""}},
		{Suite: "elm.json", Name: "mine", Class: "elm.json", Seconds: "0", Skipped: &junit.Text{Message: "it expects nothing"}},
	})
	fmt.Print(string(report), err)
	// Output:
	// <?xml version="1.0" encoding="UTF-8"?>
	// <testsuites tests="3" failures="1" errors="0" skipped="1">
	//   <testsuite name="oak.json" tests="2" failures="1" errors="0" skipped="0">
	//     <testcase name="talk" classname="oak.json" time="0.010"></testcase>
	//     <testcase name="wall" classname="oak.json" time="0.020">
	//       <failure message="expected executed, got stale">- /status: &#34;executed&#34;&#xA;+ /status: &#34;stale&#34;</failure>
	//     </testcase>
	//   </testsuite>
	//   <testsuite name="elm.json" tests="1" failures="0" errors="0" skipped="1">
	//     <testcase name="mine" classname="elm.json" time="0">
	//       <skipped message="it expects nothing"></skipped>
	//     </testcase>
	//   </testsuite>
	// </testsuites>
	// <nil>
}
