package worldengine

import (
	"worldengine/handoff"
	"worldengine/runevents"
)

// Narrate is narrate for the tests outside the package.
func Narrate(p *runevents.Producer, h *handoff.Handoff, r *handoff.Result, waited bool) error {
	start := atOnce
	if waited {
		start = queued
	}
	return narrate(p, h, r, start)
}
