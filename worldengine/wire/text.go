package wire

import "regexp"

// packages matches the names of packages that the texts of errors begin with.
var packages = regexp.MustCompile(`^((access|apply|backup|bench|feed|handoff|natsconn|rcon|runevents|` +
	`schemas|server|service|town|webhook|worldengine): )+`)

// Sentence returns the text of an error for a person or a client: without the package names at its
// beginning.
func Sentence(err error) string { return packages.ReplaceAllString(err.Error(), "") }
