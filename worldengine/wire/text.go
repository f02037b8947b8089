package wire

import "regexp"

// packages matches the package names at the beginning of an error's text.
var packages = regexp.MustCompile(`^((access|apply|backup|bench|feed|handoff|natsconn|rcon|runevents|` +
	`schemas|server|service|town|webhook|worldengine): )+`)

// Sentence returns the text of an error for a person or a client: without the package names at its
// beginning.
func Sentence(err error) string { return packages.ReplaceAllString(err.Error(), "") }
