package service

import "bytes"

// Bounds of the look for an id.
const (
	guessWithin = 16 << 10 // bytes of a payload that are looked at
	maxGuess    = 512      // bytes of an id that is found
)

// member is the name of a member of requests, as it is spelled in JSON.
type member []byte

// The members that say what a request is about.
var (
	aboutTown = member(`"townId"`)
	aboutRun  = member(`"runId"`)
	aboutKey  = member(`"idempotencyKey"`)
)

// guess returns what seems to be the id that a request has in a member, without reading the request: the
// text of the first member of that name that is a string, as it is spelled, or nothing. It serves to refuse
// a flood about one town before it costs anything, and judges nothing. Where it is wrong, because a request
// has another member of that name, spells the id with escapes, or has it far behind, a request is counted for
// another town: at worst it gets a 429 that it could have done without, or is left to the exact bound of
// the engine's queue. It allocates nothing.
func guess(about member, data []byte) []byte {
	data = data[:min(len(data), guessWithin)]
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
		id := value[1:min(len(value), maxGuess+2)]
		end := bytes.IndexByte(id, '"')
		if end < 0 {
			return nil
		}
		return id[:end]
	}
}
