// Package phrase makes parts of sentences for people.
package phrase

import (
	"fmt"
	"regexp"
	"strings"
)

// packages matches the package names at the beginning of an error's text.
var packages = regexp.MustCompile(`^((access|alerts|apply|backup|bench|commitlog|embedded|engine|feed|fsck|game|handoff|` +
	`history|hosting|httpd|index|lease|machine|mcp|mcphttp|natsconn|outbox|platform|queue|rcon|records|runevents|runlog|` +
	`runs|schemas|server|service|sharing|streamdirs|tlsfiles|town|waiting|webhook|worldengine|worldsettings): )+`)

// Sentence returns the text of an error for a person or a client: without the package names at its
// beginning.
func Sentence(err error) string { return packages.ReplaceAllString(err.Error(), "") }

// maxNames is how many names List writes out.
const maxNames = 5

// List lists the first of so many names: "a, b, c, d, e and 3 more".
func List(names []string, all int) string {
	text := strings.Join(names[:min(len(names), maxNames)], ", ")
	if more := all - maxNames; more > 0 {
		text += fmt.Sprintf(" and %d more", more)
	}
	return text
}

// Counted returns a number with its noun: "1 town", "2 towns".
func Counted[N ~int | ~int64 | ~uint64](n N, one string) string {
	if n == 1 {
		return "1 " + one
	}
	return fmt.Sprintf("%d %ss", n, one)
}

// Truncate returns a text, cut to a number of bytes if it is longer.
func Truncate(text string, limit int) string {
	if len(text) <= limit {
		return text
	}
	return strings.ToValidUTF8(text[:limit], "")
}
