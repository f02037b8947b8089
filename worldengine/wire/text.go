package wire

import (
	"slices"
	"strings"
)

// Sentence returns the text of an error for a person or a client: without the package names at its
// beginning.
func Sentence(err error) string {
	text := err.Error()
	for {
		name, rest, found := strings.Cut(text, ": ")
		if !found || !slices.Contains(prefixes, name) {
			return text
		}
		text = rest
	}
}

// prefixes are the names of packages that the texts of errors begin with.
var prefixes = []string{
	"access", "apply", "backup", "bench", "feed", "handoff", "natsconn", "rcon", "runevents",
	"schemas", "server", "service", "town", "webhook", "worldengine",
}
