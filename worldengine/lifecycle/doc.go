// Package lifecycle makes the run events of a decision, an attempt to apply a command, and an
// operator's signal, with their payloads (RunEvents v2, ExecutionSemantics v2). It is pure: it
// emits into a runevents.Producer, which has the clock and the ids.
package lifecycle
