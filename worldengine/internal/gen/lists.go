package main

import (
	"slices"

	"worldengine/runevents"
	"worldengine/worldengine/internal/kit/protocol"
	"worldengine/worldengine/wire"
)

func alertCodes() (codes []runevents.AlertCode) {
	for _, alert := range protocol.Alerts() {
		codes = append(codes, alert.Code)
	}
	return codes
}

// changing returns the verbs whose request must not be sent again before a look at its effect.
func changing() []wire.Verb {
	return slices.DeleteFunc(protocol.Verbs(), func(v wire.Verb) bool { return !protocol.LookupVerb(v).NonIdempotent })
}

// moving returns the events that move the status of a run or of a step attempt.
func moving() []runevents.EventType {
	return append(runevents.EventTypes(runevents.RunLevel), runevents.EventTypes(runevents.StepLevel)...)
}

// eventsThat returns the events for which is reports true.
func eventsThat(is func(runevents.EventType) bool) []runevents.EventType {
	return slices.DeleteFunc(runevents.EventTypes(0), func(t runevents.EventType) bool { return !is(t) })
}
