package schemas_test

import (
	"fmt"

	"worldengine/schemas"
)

// A payload is read and held against its schema at once.
func ExampleParse() {
	_, err := schemas.Parse("town-get-request.v1", []byte(`{"townId": 7}`), schemas.Limits{})
	fmt.Println(err)
	// Output:
	// schemas: town-get-request.v1: /townId: must be a string but is a number
}

// A JSON Pointer names a place in a payload.
func ExamplePointer() {
	fmt.Println(schemas.Pointer("proposal", "preconditions", 2, "a/b"))
	// Output:
	// /proposal/preconditions/2/a~1b
}
