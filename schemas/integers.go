package schemas

import (
	"strconv"

	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"
)

// Integers reads each integer of JSON Schema into an int64. It may be written as 1.0 or 1e0. It is for
// json.WithUnmarshalers.
var Integers = json.UnmarshalFromFunc(func(d *jsontext.Decoder, n *int64) error {
	value, err := d.ReadValue()
	if err != nil {
		return err
	}
	f, err := strconv.ParseFloat(string(value), 64)
	*n = int64(f)
	return err
})
