package service

import (
	"bytes"

	"github.com/go-json-experiment/json/jsontext"
)

// Bounds of the look for an id.
const (
	peekWithin = 16 << 10 // bytes of a payload that are looked at
	maxID      = 512      // bytes of an id that is found
	maxEscape  = 6        // bytes that spell one of them at most, as in \u0041
)

// member is the name of a member of requests, as it is spelled in JSON.
type member []byte

// aboutTown names the town that a request is about.
var aboutTown = member(`"townId"`)

// peekID returns the id that a request seems to have in a member, without parsing the request: the
// text of the first member of that name that is a string, or nothing. The service refuses a flood
// about one town by it before the flood costs anything; it decides nothing else.
//
// It is wrong if a request has another member of that name first, spells the name with escapes, or
// has it far behind. Such a request is counted for another town: at worst it gets a 429 without
// need, or is left to the exact bound of the engine's queue. peekID allocates nothing, unless the
// id is spelled with escapes.
func peekID(about member, data []byte) []byte {
	data = data[:min(len(data), peekWithin)]
	for {
		at := bytes.Index(data, about)
		if at < 0 {
			return nil
		}
		data = data[at+len(about):]
		value := bytes.TrimLeft(data, " \t\r\n")
		if len(value) == 0 || value[0] != ':' {
			continue // a text that reads like the name
		}
		value = bytes.TrimLeft(value[1:], " \t\r\n")
		if len(value) == 0 || value[0] != '"' {
			continue
		}
		return stringAt(value)
	}
}

// stringAt returns the text of the JSON string that data begins with. It returns nothing if that is
// longer than maxID or has escapes that JSON does not have: such a request is refused when it is
// parsed.
func stringAt(data []byte) []byte {
	data = data[:min(len(data), maxEscape*maxID+2)]
	escaped := false
	for i := 1; i < len(data); i++ {
		switch data[i] {
		case '\\':
			escaped = true
			i++ // whatever follows does not end the string
		case '"':
			text, err := data[1:i], error(nil)
			if escaped {
				text, err = jsontext.AppendUnquote(nil, data[:i+1])
			}
			if err != nil || len(text) > maxID {
				return nil
			}
			return text
		}
	}
	return nil
}
